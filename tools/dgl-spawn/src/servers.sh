# Graph servers that stay (dgl-env --keep-alive): what is known of them on this host, and the numbers of the groups that use them. Sent
# with preflight.sh where processes have a server_name. In front of it: `servers` (their job's name), `address` (this host's).
# Their folder is that of a detached job (detach.sh); `facts` is in it, and on the first host `groups`, with a folder for each group.
# shellcheck disable=SC2154

servers_folder=${HOME:-/nonexistent}/.local/state/dgl-tools/$servers/$address

# servers_facts FOLDER IP_CONFIG PART_CONFIG CLIENTS SERVERS SAMPLERS: what they and their trainers must have in common, `KEY VALUE` each
servers_facts() {
  printf 'clients %s\nservers %s\nsamplers %s\n' "$4" "$5" "$6"
  at "$1" "$2"; printf 'ip_config %s\n' "$(cksum <"$path" | tr ' ' :)"
  at "$1" "$3"; printf 'part_config %s\n' "$(cksum <"$path" | tr ' ' :)"
}

# find_servers: sets the token of the job that they are, and the guard that keeps it here; what runs is believed, not a file
find_servers() {
  servers_token='' servers_guard=''
  [ ! -r "$servers_folder/token" ] || read -r servers_token <"$servers_folder/token"
  [ -z "$servers_token" ] || for servers_guard in $(job_pids "guard-$servers_token"); do break; done
}

# servers_ended: whether they have, or are about to
servers_ended() { grep -qs ' cause ' "$servers_folder/journal" || ! [ -d "/proc/$servers_guard" ]; }

# check_servers, with the words of servers_facts. Says `servers none | starting | alive | dead CAUSE`, and of one that serves other trainers
# `differs KEY THEIRS OURS`.
check_servers() {
  find_servers
  if [ -z "$servers_token" ]; then echo 'servers none'; return; fi
  servers_cause=$(sed -n 's/^[0-9]* cause //p' "$servers_folder/journal" 2>/dev/null | head -n 1)
  if [ -z "$servers_guard" ] || [ -n "$servers_cause" ]; then
    printf 'servers dead %s\n' "${servers_cause:-gone}"
    return
  fi
  servers_facts "$@" 2>/dev/null | while read -r key value; do
    theirs=$(sed -n "s/^$key //p" "$servers_folder/facts")
    [ "$theirs" = "$value" ] || printf 'differs %s %s %s\n' "$key" "${theirs:--}" "$value"
  done
  # as many as are waited for listen
  if [ "$(grep -c ' listening ' "$servers_folder/journal")" -ge "$(grep -c '"port":' "$servers_folder/processes")" ]; then
    echo 'servers alive'
  else
    echo 'servers starting'
  fi
}

# claim_start: says `claimed` when nobody else starts them just now; then others wait until this shell has ended. Only the first host is asked.
claim_start() {
  find_servers
  # a shell is known by its number and when it began
  read -r claim_self _ </proc/self/stat
  claim_mine=$claim_self-$(claim_began "$claim_self") claim=$servers_folder.starting
  (umask 077 && mkdir -p -- "${servers_folder%/*}")
  claim_theirs=$(readlink "$claim")
  if [ -n "$claim_theirs" ] && [ "$(claim_began "${claim_theirs%-*}")" != "${claim_theirs#*-}" ]; then
    # somebody else may have done the same, and claimed it
    mv -- "$claim" "$claim.$claim_self" 2>/dev/null && {
      claim_moved=$(readlink "$claim.$claim_self")
      rm -f -- "$claim.$claim_self"
      [ "$claim_moved" = "$claim_theirs" ] || ln -s "$claim_moved" "$claim" 2>/dev/null
    }
  fi
  if [ -z "$servers_guard" ] && ln -s "$claim_mine" "$claim" 2>/dev/null; then echo claimed; else echo 'servers starting'; fi
}
claim_began() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# take_group: a number that no other group has had, because whoever makes the folder has it; and a port for torch's rendezvous that
# nobody listens on, and that no group takes which begins at the same moment
take_group() {
  mkdir -p -- "$servers_folder/groups"
  # shellcheck disable=SC2012 # names here are numbers
  taken=$(ls "$servers_folder/groups" | wc -l) taken=$((taken))
  until mkdir -- "$servers_folder/groups/$taken" 2>/dev/null; do
    [ -d "$servers_folder/groups/$taken" ] || { fault "no number can be had for this group of trainers: $servers_folder cannot be written"; return; }
    taken=$((taken + 1))
  done
  listens=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { sub(/.*:/, "", $2); printf "%s ", $2 }')"
  port=$((29500 + taken % 100))
  while [ "$port" -le 32000 ]; do
    case $listens in *" $(printf '%04X' "$port") "*) port=$((port + 100)) ;; *) break ;; esac
  done
  printf 'group %s %s\n' "$taken" "$port"
}
