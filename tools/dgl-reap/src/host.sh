# Lists, signals or ends what jobs of this user have on a host, or removes shared memory that nobody uses. Sent in front of it: common's
# job.sh, `what` (list, job, all, signal, shm), `wanted` (a job's name), `role`, `rank`, `signal` and `grace` (s). Says, a line each, words
# that may hold anything as `:BASE64`, what is not known as `-`:
#   found PID AGE_S RSS_KB SHM_KB PORT,... ROLE RANK GROUPS JOB COMMAND
#   reaped JOB PROCESSES SHM_FILES PIDS_LEFT
#   signalled JOB PROCESSES
#   shm FILES
# shellcheck disable=SC2154


# role_of PID: sets `its_role` and `its_rank`, from what the process was started with
role_of() {
  # shellcheck disable=SC2046 # two words
  set -- $(tr '\0\n' '\n ' <"/proc/$1/environ" 2>/dev/null | LC_ALL=C awk -F= '
    /^DGL_ROLE=(server|client)$/ { dgl = $2 }
    /^(RANK|DGL_SERVER_ID)=[0-9]+$/ { number[$1] = $2 }
    END {
      role = dgl == "server" ? "server" : dgl == "client" ? "trainer" : "RANK" in number ? "worker" : "-"
      own = role == "server" ? "DGL_SERVER_ID" : "RANK"
      print role, own in number ? number[own] : "-"
    }')
  its_role=$1 its_rank=$2
}

# listening PID...: `PID:PORT` each, where they listen
listening() {
  sockets=
  for pid; do sockets="$sockets /proc/$pid/fd"; done
  # shellcheck disable=SC2012,SC2086 # names here are numbers; a word a folder
  { cat /proc/net/tcp /proc/net/tcp6; LC_ALL=C ls -l /proc/self/fd $sockets; } 2>/dev/null | LC_ALL=C awk '
    function decimal(hex,    i, n) { for (i = 1; i <= 4; i++) n = n * 16 + index("0123456789ABCDEF", substr(hex, i, 1)) - 1; return n }
    $4 == "0A" { port[$10] = decimal(substr($2, length($2) - 3)) }
    /^\/proc\// { split($1, path, "/"); pid = path[3] }
    match($0, /socket:\[[0-9]+\]$/) { inode = substr($0, RSTART + 8, RLENGTH - 9); if (inode in port) print pid ":" port[inode] }'
}

# groups_of JOB: how many groups of trainers have used the graph servers that it is; they are counted on their first host (dgl-spawn)
groups_of() {
  for groups in "${HOME-}/.local/state/dgl-tools/$1"/*/groups; do
    # shellcheck disable=SC2012 # names here are numbers
    if [ -d "$groups" ]; then ls "$groups" | wc -l | tr -d ' '; return; fi
  done
  echo -
}

# found PID JOB
found() {
  pid=$1 job=$2
  read -r stat 2>/dev/null <"/proc/$pid/stat" || return 0
  # behind "PID (name) " the 20th word is when it began
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  age=$((up - ${20} / hz)) rss=0 shm=0 its_ports=
  while read -r key value _; do
    case $key in VmRSS:) rss=$value ;; RssShmem:) shm=$value ;; esac
  done 2>/dev/null <"/proc/$pid/status"
  for word in $ports; do [ "${word%:*}" != "$pid" ] || its_ports=$its_ports,${word#*:}; done
  its_ports=${its_ports#,}
  role_of "$pid"
  its_groups=-
  if [ "$its_role" = server ]; then its_groups=$(groups_of "$job"); fi
  printf 'found %s %s %s %s %s %s %s %s %s %s\n' "$pid" "$age" "$rss" "$shm" "${its_ports:--}" "$its_role" "$its_rank" "$its_groups" \
    "$(printf %s "$job" | job_b64)" "$(tr '\0\n' '  ' 2>/dev/null <"/proc/$pid/cmdline" | head -c 800 | job_b64)"
}

list() {
  hz=$(getconf CLK_TCK 2>/dev/null) || hz=100
  read -r up _ </proc/uptime
  up=${up%%.*}
  # shellcheck disable=SC2046
  ports=$(listening $(printf '%s\n' "$jobs" | awk '$3 != "" { print $1 }'))
  while read -r pid _ job; do [ -z "$job" ] || found "$pid" "$job"; done <<EOF
$jobs
EOF
}

# To every process of a rank, its samplers among them: one of them may be the one that hangs.
signal() {
  count=0
  while read -r pid _ job; do
    [ "$job" = "$wanted" ] || continue
    role_of "$pid"
    case ${role:-$its_role},${rank:-$its_rank} in "$its_role,$its_rank") ;; *) continue ;; esac
    kill -s "$signal" "$pid" 2>/dev/null && count=$((count + 1))
  done <<EOF
$jobs
EOF
  [ "$count" = 0 ] || printf 'signalled %s %s\n' "$(printf %s "$wanted" | job_b64)" "$count"
}

# reap TOKEN JOB
reap() {
  pids=$(job_pids "$1")
  # shellcheck disable=SC2086
  shm=$(job_shm $pids)
  # the watch carries the token alone, and is none of what was started
  count=$(printf '%s\n' "$jobs" | awk -v token="$1" '$2 == token && $3 != ""' | grep -c .)
  left=
  job_end "$1" "$grace" || left=$(job_pids "$1")
  removed=$(printf '%s\n' "$shm" | job_shm_remove)
  printf 'reaped %s %s %s %s\n' "$(printf %s "$2" | job_b64)" "$count" "$removed" "$(printf %s "$left" | job_b64)"
}

# A name may have been used twice; each token is ended once.
end_jobs() {
  printf '%s\n' "$jobs" | awk '$3 != "" { print $2, $3 }' | sort -u | while read -r token job; do
    case $what,$job in all,* | "job,$wanted") reap "$token" "$job" ;; esac
  done
}

job_uid=$(id -u)
case $what in
  shm) printf 'shm %s\n' "$(job_dgl_shm | awk -v me="$job_uid" '$1 == me && $2 == "-"' | cut -d ' ' -f 4- | job_shm_remove)"; exit ;;
esac
jobs=$(job_list)
case $what in
  list) list ;;
  signal) signal ;;
  *) end_jobs ;;
esac
