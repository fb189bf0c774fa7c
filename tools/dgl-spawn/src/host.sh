# One host's part of a job. Sent in front of it: common's job.sh, and what this job is: `token`, `job`, `count` (processes, 0..count-1),
# `ports` ("ID:HEXPORT" of each server), `lost_after` (s), `grace` (s), `checks` (a function), `stays` (not empty: it is graph servers that
# stay), `served` (a function that sets `servers_guard` where the job uses such servers), and per process ID `enter_ID` (its folder and
# environment) and `run_ID` (becomes the process).
#
# To the launcher, a line each, on stdout:
#   ready                                     before the start, behind what preflight.sh says
#   pid ID PID | listening ID | exited ID STATUS | alive
#   loud ID STREAM RELAY WAITS                more than a relay can carry: it waits until process WAITS is gone; its stdin is /proc/RELAY/fd/0
#   shm COUNT | over STATUS                   files removed from /dev/shm; the end, not 0 when something could not be ended
#   o ID TEXT | e ID TEXT                     a line of its stdout, stderr; O, E: a piece of one, the next piece follows
#   drained ID                                a stream of its output is at its end (two of them a process)
#   unserved                                  the guard of the graph servers that the job uses is gone
# From the launcher: start [GROUP PORT], alive (a heartbeat), end GRACE [ABRT], kill, go WAITS; `group` and `claim` before the
# start ask for what is in servers.sh; `detach GROUP,PORT ADDRESS [PORT]` in place of start: the job is to
# outlive the launcher. Then this script's own text is run once more, by guard.py, which is the launcher to it; `kept` is the folder that
# the guard gave it, where the output goes; to the launcher follow.py tells what happens there.
# Everything behind `ready` goes through one pipe, at most 4096 bytes a write, so that no line is ever torn.

# shellcheck disable=SC2154 # token, job, count, ports, lost_after and grace are sent in front of it
# shellcheck disable=SC2034 # setsid is used by run_ID
# shellcheck disable=SC3045 # dash, bash, busybox and mksh all know ulimit -H and -S

# While servers load their graph the watch looks so many times a second: one that fails right after that leaves files in /dev/shm that
# nobody else knows. Then once, which costs a fork a second.
quick=5
if ! sleep 0.01 2>/dev/null; then quick=1; fi
# A piece of a line, with its head: below PIPE_BUF (4096 on Linux), up to which a write to a pipe is whole.
piece=4000

# From here on a stream is loud: so many bytes in less than two seconds of relaying.
loud=262144

relay() { # ID SMALL LARGE: one stream of a process, line by line
  LC_ALL=C bytes=0 since=0 asked=
  while IFS= read -r line; do
    relay_line "$1" "$2" "$3"
    bytes=$((bytes + ${#line}))
    [ "$bytes" -lt "$loud" ] || relay_loud "$1" "$2"
  done
  [ -z "$line" ] || relay_line "$1" "$2" "$3"
  printf 'drained %s\n' "$1"
}
# Asks the launcher, once, to carry the stream by other means, and waits until it did, or has said that it will not.
relay_loud() {
  read -r now rest </proc/uptime
  now=${now%.*} bytes=0
  if [ -z "$asked" ] && [ $((now - since)) -lt 2 ]; then
    asked=1
    DGL_TOOLS_TOKEN=waits-$token sleep 1000000 >/dev/null 2>&1 6>&- &
    read -r self rest </proc/self/stat
    printf 'loud %s %s %s %s\n' "$1" "$2" "$self" "$!" >&6
    wait "$!" 2>/dev/null
  fi
  since=$now
}
relay_line() {
  if [ "${#line}" -le "$piece" ]; then
    printf '%s %s %s\n' "$2" "$1" "$line"
    return
  fi
  # as a here-document: mksh has no printf of its own, and words of a command may not be as long as this can be
  fold -b -w "$piece" <<EOF | {
$line
EOF
    IFS= read -r part
    while IFS= read -r next; do
      printf '%s %s %s\n' "$3" "$1" "$part"
      part=$next
    done
    printf '%s %s %s\n' "$2" "$1" "$part"
  }
}

started() { # ID: the process itself, without what is the watch's
  (
    # in here, because the shell around it says on its own stderr how this one was ended
    if [ -n "$kept" ]; then eval "exec >\"\$kept/\$log_$1\" 2>&1"; else exec 2>&3; fi
    trap - HUP INT TERM
    exec 4>&- 3>&- 5<&-
    export DGL_TOOLS_JOB="$job" DGL_TOOLS_TOKEN="$token"
    "enter_$1" && "run_$1"
  )
}
# process ID: runs one, its output relayed to fd 4, its start and end told to the watch on fd 6. In no background, because sh
# would have it ignore SIGINT there.
process() {
  if [ -n "$kept" ]; then
    started "$1" </dev/null 2>/dev/null
    printf 'exited %s %s\n' "$1" "$?" >&6
    return
  fi
  {
    {
      {
        started "$1"
        printf 'exited %s %s\n' "$1" "$?" >&6
      } 6>&6 | relay "$1" o O >&4 3>&- 2>/dev/null
    } 3>&1 | relay "$1" e E >&4 2>/dev/null
  } </dev/null
}

# A pipeline as long as there are processes: its members run side by side and in the foreground.
processes() {
  if [ $(($1 + 1)) -lt "$count" ]; then
    # shellcheck disable=SC2260 # the pipe only makes them run side by side
    process "$1" >/dev/null | processes $(($1 + 1))
  else
    process "$1" >/dev/null
  fi
}

tell() { printf '%s\n' "$*" 2>/dev/null; }
# What the watch tells goes through a pipe of its own: where nobody takes the job's output any more, the watch must not wait for that.
teller() { while IFS= read -r line; do printf '%s\n' "$line"; done; }

# What the job maps in /dev/shm, while it lives: a process that is killed cannot be asked any more. Looking through /proc costs some
# 10 ms of CPU, so that is done when files came to /dev/shm or went, and once more for those that were mapped a moment later; and
# now and then for files that an earlier job has left and this one opened.
look_at_shm() {
  set -- /dev/shm/*
  [ "$*" = "$shm_seen" ] || shm_news=2
  shm_seen=$*
  if [ "$shm_news" -gt 0 ] || [ $((looks % (10 * pace))) -eq 0 ]; then
    shm_news=$((shm_news - 1))
    remember_shm
  fi
}
remember_shm() {
  set -- /dev/shm/*
  [ -e "$1" ] || return 0
  # shellcheck disable=SC2046
  shm=$({ [ -z "$shm" ] || printf '%s\n' "$shm"; job_shm $(job_pids "$token"); } | LC_ALL=C sort -u)
}

listening() {
  still=
  for port in $ports; do
    if LC_ALL=C grep -qsiE "^ *[0-9]+: [0-9A-F]+:${port#*:} [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6; then
      tell "listening ${port%%:*}"
    else
      still="$still $port"
    fi
  done
  ports=$still
}

# pace N: looks so many times a second from now on
pace() {
  pace=$1 pause=1
  [ "$pace" = 1 ] || pause=0.2
  [ -z "$ticker" ] || kill -s KILL "$ticker" 2>/dev/null
  { while DGL_TOOLS_TOKEN=waits-$token sleep "$pause"; do echo tick || break; done; } </dev/null >&6 2>/dev/null 4>&- 5<&- &
  ticker=$!
}

# What a server has left that failed while it loaded its graph, between two looks.
unseen_shm() {
  job_dgl_shm | LC_ALL=C awk -v me="$(id -u)" -v before="$shm_before" '$1 == me && $2 == "-" && !index(before, " " $4 " ")' | cut -d ' ' -f 4-
}
# Removes what the job mapped. Trainers map what graph servers that stay have there, and may end a moment after them.
remove_shm() {
  [ -z "$ports" ] || shm=$(printf '%s\n' "$shm"; unseen_shm)
  removed=$(printf '%s\n' "$shm" | job_shm_remove) tries=0
  while [ -n "$stays" ] && [ "$tries" -lt 75 ] && [ -n "$(left_of_shm)" ]; do
    sleep 0.2 2>/dev/null || sleep 1
    removed=$((removed + $(printf '%s\n' "$shm" | job_shm_remove))) tries=$((tries + 1))
  done
  tell "shm $removed"
}
left_of_shm() { while read -r number file; do [ ! -f "$file" ] || echo "$number"; done <<EOF
$shm
EOF
}

# The watch: one loop over what happens, in the order in which it happens. It outlives the launcher, whose silence it takes for
# its end.
watch() {
  # A launcher that is gone must not take the watch with it.
  trap '' PIPE HUP INT TERM
  # A second way into the pipe that it reads, for those that it starts itself.
  exec 6>/proc/self/fd/0
  { while read -r line; do printf '%s\n' "$line"; done; echo eof; } <&5 >&6 2>/dev/null 4>&- &
  reader=$!
  ticker='' looks=0
  shm_before=
  if [ -n "$ports" ]; then
    shm_before=" $(job_dgl_shm | cut -d ' ' -f 4 | tr '\n' ' ')"
    pace "$quick"
  else
    pace 1
  fi
  served_by=${servers_guard-} shm='' shm_seen='' shm_news=0 groups='' ending='' ended='' gone='' waiting=0 patience=10 ticks=0 silent=0
  while read -r what id value; do
    case $what in
      tick)
        [ -z "$ports" ] || listening
        look_at_shm
        looks=$((looks + 1))
        [ "$((looks % pace))" = 0 ] || continue
        [ -n "$ports" ] || [ "$pace" = 1 ] || pace 1
        ticks=$((ticks + 1)) silent=$((silent + 1))
        [ "$silent" -lt "$lost_after" ] || alone
        [ -z "$served_by" ] || ! servers_ended || { served_by=''; tell unserved; }
        # The launcher still reads what loud processes have left; but not for ever.
        [ -z "$ended" ] || { patience=$((patience - 1)); [ "$patience" -gt 0 ] || break; } ;;
      alive) silent=0; tell alive ;;
      pid) groups="$groups $value"; tell "pid $id $value" ;;
      exited) tell "exited $id $value" ;;
      loud) waiting=$((waiting + 1)); tell "loud $id $value" ;;
      go) go "$id"; [ -z "$ended" ] || [ "$waiting" -gt 0 ] || break ;;
      end) end "$id" "$value" ;;
      eof) alone ;;
      kill) for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
        # shellcheck disable=SC2046
        job_signal KILL $(job_pids "$token") ;;
      ended)
        ended=$id
        if [ "$waiting" -le 0 ] || [ -n "$gone" ]; then break; fi ;;
    esac
  done
  kill -s KILL "$reader" "$ticker" 2>/dev/null
  # shellcheck disable=SC2046
  job_signal KILL $(job_pids "waits-$token")
  remove_shm
  # they may have ended a moment before those that they served
  [ -z "${servers_guard-}" ] || ! servers_ended || tell unserved
  tell "over $ended"
  # Nobody takes what is still to be said: those that would wait for it, this script's own shell among them, end now.
  # shellcheck disable=SC2046
  [ -z "$gone" ] || { job_signal KILL $(job_pids "out-$token"); kill -s KILL $$; }
  # a stream may become loud while its last lines are read: nobody carries it any more
  exec 6>&-
  while read -r what id value; do
    case $what in loud) go "${value##* }" ;; exited) tell "exited $id $value" ;; esac
  done
}

# The launcher is gone, or does not hear us.
alone() {
  gone=1
  exec >/dev/null
  end "$grace"
}

end() { # GRACE [ABRT]
  [ -z "$ending" ] || return 0
  ending=1
  remember_shm
  {
    if [ -n "$2" ]; then
      # Python prints where it is (PYTHONFAULTHANDLER), which takes it a moment.
      # shellcheck disable=SC2046
      job_signal "$2" $(job_pids "$token")
      sleep 1
    fi
    # shellcheck disable=SC2086
    job_end "$token" "$1" $groups
    echo "ended $?"
  } </dev/null >&6 4>&- 5<&- &
}

# go WAITS: lets a relay go on. It may have gone already, and the number be another's.
go() {
  waiting=$((waiting - 1))
  for pid in $(job_pids "waits-$token"); do
    [ "$pid" != "$1" ] || kill -s KILL "$pid"
  done
}

# A limit of 1024 is too low for a server of many clients (two sockets each); above 65536 programs that close every descriptor slow down.
most=$(ulimit -H -n)
case $most in unlimited) most=65536 ;; *) [ "$most" -le 65536 ] || most=65536 ;; esac
ulimit -S -n "$most" 2>/dev/null

setsid=$(command -v setsid)
kept=${DGL_TOOLS_KEPT-}
unset DGL_TOOLS_KEPT
[ -n "$kept" ] || checks
echo ready
while read -r go words; do
  case $go in alive) echo alive ;; claim) claim_start ;; group) take_group ;; *) break ;; esac
done
# shellcheck disable=SC2086 # its words are words
case $go in start) group=${words% *} master_port=${words#* }; served ;; detach) detach $words; exit ;; *) exit 0 ;; esac
# An engine may signal all that is here, as Slurm at a time limit: that is for the processes. We tell how they end, and clean up.
trap '' HUP INT TERM
{ { processes 0 6>&1 >/dev/null; } | watch | teller >&4; } 4>&1 5<&0 | DGL_TOOLS_TOKEN=out-$token cat
