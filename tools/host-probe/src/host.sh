# What a host is and has, a line `NAME VALUE` each; what cannot be had is left out. Sent in front of it: `first` and `last` (ports of its
# graph servers), `workspace` (may be empty), `python` (shell text that runs facts.py), and
# env.sh.
# shellcheck disable=SC2154

say() { [ -z "$2" ] || printf '%s %s\n' "$1" "$2"; }

# The first address of each card, as SIOCGIFADDR tells it to DGL.
cards() {
  LC_ALL=C ip -o -4 addr show 2>/dev/null | awk '
    / secondary / { next }
    $3 == "inet" { card = $2; sub(/@.*/, "", card); address = $4; sub(/\/.*/, "", address); if (!(card in seen)) print "card", card, address; seen[card] = 1 }'
}
cards_ifconfig() {
  LC_ALL=C ifconfig -a 2>/dev/null | awk '
    /^[^ \t]/ { card = $1; sub(/:$/, "", card) }
    $1 == "inet" && card !~ /:/ { address = $2; sub(/^addr:/, "", address); if (!(card in seen)) print "card", card, address; seen[card] = 1 }'
}

# free FOLDER: bytes for this user; the name of the file system may hold blanks
free() {
  free_kb=$(LC_ALL=C df -Pk -- "$1" 2>/dev/null | sed -n '2s/^.* [0-9][0-9]*  *[0-9][0-9]*  *\([0-9][0-9]*\)  *[0-9-]*%* .*$/\1/p')
  [ -z "$free_kb" ] || echo $((free_kb * 1024))
}

# fs FOLDER: the kind of its file system; of several mounts on one folder the last one counts
fs() {
  folder=$(cd -P -- "$1" 2>/dev/null && pwd) || return 0
  FOLDER=$folder LC_ALL=C awk '
    { point = $2; gsub(/\\040/, " ", point); at = point == "/" ? "/" : point "/" }
    index(ENVIRON["FOLDER"] "/", at) == 1 && length(at) >= best { best = length(at); kind = $3 }
    END { print kind }' /proc/mounts 2>/dev/null
}

# Only a listener is in the way of torch's rendezvous; the graph servers will listen later.
master_port() {
  [ -r /proc/net/tcp ] || return 0
  taken=" $(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" { sub(/.*:/, "", $2); printf "%s ", $2 }')"
  port=29500
  while [ "$port" -le 29599 ]; do
    if [ "$port" -lt "$first" ] || [ "$port" -gt "$last" ]; then
      case $taken in *" $(printf '%04X' "$port") "*) ;; *) echo "$port"; return ;; esac
    fi
    port=$((port + 1))
  done
}

cards=$(cards)
[ -n "$cards" ] || cards=$(cards_ifconfig)
[ -z "$cards" ] || printf '%s\n' "$cards"
# those that a job may use, which may be fewer than there are; nproc obeys OMP_NUM_THREADS too
say cpus "$( (unset OMP_NUM_THREADS OMP_THREAD_LIMIT; nproc) 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
say mem "$(awk '/^MemTotal:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo 2>/dev/null)"
[ ! -d /dev/shm ] || say shm "$(free /dev/shm)"
if [ -n "$workspace" ]; then
  while [ ! -d "$workspace" ]; do
    case $workspace in /*/*) workspace=${workspace%/*} ;; /*) workspace=/ ;; */*) workspace=${workspace%/*} ;; *) workspace=. ;; esac
  done
  say free "$(free "$workspace")"
  say fs "$(fs "$workspace")"
fi
gpus=0
for gpu in /proc/driver/nvidia/gpus/*; do [ ! -e "$gpu" ] || gpus=$((gpus + 1)); done
say gpus "$gpus"
# dash, bash and busybox have it; `unlimited` is no number and is left out
# shellcheck disable=SC3045
say nofile "$(ulimit -H -n 2>/dev/null)"
say master_port "$(master_port)"
say home "$HOME"
conda_env=
find_env
if [ -n "$prefix" ]; then
  say prefix "$prefix"
  say interpreter "$interpreter"
  [ -z "$conda" ] || conda_env=$(conda_name)
  say conda_env "$conda_env"
  say path "$PATH"
fi
# as dgl-env sets it for the processes of the job
env_python() {
  if [ -n "$prefix" ]; then
    export PATH="$prefix/bin:$PATH" DGL_TOOLS_PYTHON="$interpreter"
    if [ -n "$conda" ]; then export CONDA_PREFIX="$prefix" CONDA_DEFAULT_ENV="$conda_env"; else export VIRTUAL_ENV="$prefix"; fi
  elif [ -n "$venv$conda" ]; then
    return # which was said
  fi
  exec "${SHELL:-/bin/sh}" -c "$python"
}
# A setup may talk too: only marked lines count, and the last other one tells why there are none.
said=$( (env_python) 2>&1 </dev/null)
# as a here-document: mksh has no printf of its own, and the words of a command may not be as long as this can be
marked() {
  awk 'sub(/^dgl-tools-fact /, "") { facts = 1; print; next }
    /[^ \t]/ { last = $0 }
    END { if (!facts && last != "") print "why", substr(last, 1, 300) }' <<EOF
$said
EOF
}
facts=$(marked)
[ -z "$cards" ] || facts=$(printf '%s\n' "$facts" | grep -v '^pycard ')
printf '%s\n' "$facts" | sed 's/^pycard /card /'
