# Lists or ends what jobs have left on a host. Sent in front of it: common's job.sh, `what` (list, job, all), `wanted` (a job's name)
# and `grace` (s). Says, a line each, words that may hold anything as `:BASE64`:
#   found PID AGE_S RSS_BYTES JOB DGL_ROLE RANK DGL_SERVER_ID COMMAND
#   reaped JOB PROCESSES SHM_FILES PIDS_LEFT
# shellcheck disable=SC2154

b64() { printf :; base64 | tr -d '\n'; }
variable() { job_env "$1" "$2" | tr -d '\n' | b64; }

# mine: of the processes that carry a token, those of this user, `PID TOKEN` each. Root reads everybody's.
mine() {
  me=$(id -u)
  for pid in $(job_pids ''); do
    uid=$(sed -n 's/^Uid:[[:blank:]]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
    [ "$uid" = "$me" ] || continue
    token=$(job_env "$pid" DGL_TOOLS_TOKEN)
    case $token in *[!0-9a-f]*) continue ;; esac
    [ "${#token}" -ne 32 ] || printf '%s %s\n' "$pid" "$token"
  done
}

found() { # PID
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
  pid=$1
  # behind "PID (name) " the 20th word is when it began
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  age=$((up - ${20} / hz))
  rss=$(sed -n 's/^VmRSS:[[:blank:]]*\([0-9]*\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
  command=$(tr '\0\n' '  ' 2>/dev/null <"/proc/$pid/cmdline" | head -c 800 | b64)
  printf 'found %s %s %s %s %s %s %s %s\n' "$pid" "$age" "$((${rss:-0} * 1024))" "$(variable "$pid" DGL_TOOLS_JOB)" \
    "$(variable "$pid" DGL_ROLE)" "$(variable "$pid" RANK)" "$(variable "$pid" DGL_SERVER_ID)" "$command"
}

# reap TOKEN JOB
reap() {
  pids=$(job_pids "$1")
  # shellcheck disable=SC2086
  shm=$(job_shm $pids)
  count=0
  for pid in $pids; do [ -z "$(job_env "$pid" DGL_TOOLS_JOB)" ] || count=$((count + 1)); done
  left=
  job_end "$1" "$grace" || left=$(job_pids "$1")
  removed=$(printf '%s\n' "$shm" | job_shm_remove)
  printf 'reaped %s %s %s %s\n' "$(printf %s "$2" | b64)" "$count" "$removed" "$(printf %s "$left" | b64)"
}

hz=$(getconf CLK_TCK 2>/dev/null) || hz=100
read -r up rest </proc/uptime
up=${up%%.*}
ended=' '
# shellcheck disable=SC2046
set -- $(mine)
while [ "$#" -ge 2 ]; do
  pid=$1 token=$2
  shift 2
  # The watch of a job carries the token alone: it ends with the rest.
  name=$(job_env "$pid" DGL_TOOLS_JOB)
  [ -n "$name" ] || continue
  case $what in
    list) found "$pid"; continue ;;
    job) [ "$name" = "$wanted" ] || continue ;;
  esac
  case $ended in *" $token "*) continue ;; esac
  ended="$ended$token "
  reap "$token" "$name"
done
