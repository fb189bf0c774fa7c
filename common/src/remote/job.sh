# What dgl-spawn and dgl-reap know about the processes of a job on a host. POSIX sh; /proc makes it Linux.
# A process belongs to a job by the token in the environment it was started with, never by the words of its command.

# job_pids TOKEN: the processes that carry the token, a word each; where `job_uid` is set, those of that user only, because root reads
# everybody's environment. A zombie has none left and does not count.
job_pids() {
  # shellcheck disable=SC2013 # no blank is in /proc/PID/environ
  for job_file in $(LC_ALL=C grep -ls -- "DGL_TOOLS_TOKEN=$1" /proc/[0-9]*/environ); do
    job_file=${job_file#/proc/} job_file=${job_file%/environ}
    [ -z "${job_uid-}" ] || job_is_of "$job_uid" "$job_file" || continue
    printf '%s ' "$job_file"
  done
}

# job_list: what carries a token, of this user, `PID TOKEN JOB` each. What belongs to the watch of a job has no JOB, and perhaps a word
# and a dash in front of its token.
job_list() {
  for job_pid in $(job_uid=$(id -u); job_pids ''); do
    # no variable has an empty name
    printf '\n=%s\n' "$job_pid"
    tr '\0\n' '\n ' <"/proc/$job_pid/environ" 2>/dev/null
  done | LC_ALL=C awk '
    function tell() { if (token ~ /^[0-9a-f]+$/ && length(token) == 32) print pid, token, job }
    /^=/ { tell(); pid = substr($0, 2); token = ""; job = "" }
    /^DGL_TOOLS_TOKEN=/ { token = substr($0, 17); sub(/^[a-z]+-/, "", token) }
    /^DGL_TOOLS_JOB=/ { job = substr($0, 15) }
    END { tell() }'
}

# job_b64: what may hold anything, as one word
job_b64() { printf :; base64 | tr -d '\n'; }

# job_is_of UID PID: whether it is that user's.
job_is_of() {
  # shellcheck disable=SC2034 # of each line the first two words
  while read -r job_key job_value job_rest; do
    case $job_key in Uid:) [ "$job_value" = "$1" ]; return ;; esac
  done 2>/dev/null <"/proc/$2/status"
  return 1
}

# job_env PID NAME: the value that NAME had when PID was started.
job_env() {
  tr '\0\n' '\n ' <"/proc/$1/environ" 2>/dev/null | LC_ALL=C sed -n "s/^$2=//p" | head -n 1
}

# job_signal SIGNAL PID...: once to each process, and to its whole group where it leads one (setsid gave it one of its own), so that
# a child that has thrown its environment away is met too. Sets $job_led, the groups that got it.
job_signal() {
  job_sig=$1 job_led=' ' job_others=; shift
  for job_pid; do
    read -r job_stat 2>/dev/null <"/proc/$job_pid/stat" || continue
    # "PID (name) state ppid pgrp ...": the name may hold blanks and brackets, so cut behind the last one
    # shellcheck disable=SC2086
    set -- ${job_stat##*) }
    if [ "$3" = "$job_pid" ] && kill -s "$job_sig" -- "-$job_pid" 2>/dev/null; then
      job_led="$job_led$job_pid "
    else
      job_others="$job_others $job_pid:$3"
    fi
  done
  # Once: a second ABRT ends Python while it prints its stacks.
  for job_pid in $job_others; do
    case $job_led in *" ${job_pid#*:} "*) ;; *) kill -s "$job_sig" "${job_pid%:*}" 2>/dev/null ;; esac
  done
}

# The device of /dev/shm as /proc/PID/maps has it. A file there is known by device and number, because a job with a /dev/shm of its own
# maps files of the same names. Without a mount there of its own, any device counts.
job_shm_device() {
  LC_ALL=C awk '$5 == "/dev/shm" { split($3, d, ":"); device = sprintf("%02x:%02x", d[1], d[2]) }
    END { print device == "" ? "[0-9a-f]*:[0-9a-f]*" : device }' /proc/self/mountinfo
}

# job_shm PID...: the files in /dev/shm that these processes map, `NUMBER PATH` each.
job_shm() {
  [ "$#" -gt 0 ] || return 0
  job_device=$(job_shm_device)
  for job_pid; do
    LC_ALL=C sed -n "s,^[^ ]* [^ ]* [^ ]* $job_device \\([0-9]*\\)  *\\(/dev/shm/.*\\)\$,\\1 \\2,p" "/proc/$job_pid/maps" 2>/dev/null
  done | LC_ALL=C sed 's, (deleted)$,,' | LC_ALL=C sort -u
}

# job_shm_remove: removes the files named on stdin, as job_shm names them, that nobody maps any more, and prints how many that were. DGL
# unlinks its own at its end, but not always, and a process that was killed never does.
job_shm_remove() {
  job_count=0 job_device=
  while read -r job_number job_file; do
    [ -f "$job_file" ] || continue
    [ -n "$job_device" ] || job_device=$(job_shm_device)
    # of that name there may be another file by now
    # shellcheck disable=SC2012 # one file, its number is the first word
    [ "$(ls -di -- "$job_file" 2>/dev/null | sed 's/^ *\([0-9]*\) .*/\1/')" = "$job_number" ] || continue
    LC_ALL=C grep -qs "^[^ ]* [^ ]* [^ ]* $job_device $job_number  */dev/shm/" /proc/[0-9]*/maps && continue
    rm -f -- "$job_file" && job_count=$((job_count + 1))
  done
  echo "$job_count"
}

# job_dgl_shm: the files of DGL in /dev/shm, whoever's, `UID PID BYTES NUMBER PATH` each: PID is the first process that maps it, `-` where
# none does or none can be seen. A feature's file ends in -kvdata-. Those of a graph G, by DGL 0.5 to 2.4, are G itself, GG_0_csc_indptr
# and the like, G_node_*, G_edge_* and dgl.graphbolt.G_*.lock; G is known by a few whose names are nobody else's.
job_dgl_shm() {
  set --
  for job_file in /dev/shm/*; do
    case ${job_file##*/} in
      *-kvdata- | dgl.graphbolt.*.lock) set -- "$@" "$job_file" ;;
      *_node_meta | *_node_node_map | *_edge_edge_map | *_node_inner_node | *_edge_inner_edge | *_node__ID | *_edge__ID | *_edge__TYPE)
        job_graph=${job_file##*/} job_graph=${job_graph%_node_*} job_graph=${job_graph%_edge_*}
        set -- "$@" "/dev/shm/$job_graph" "/dev/shm/$job_graph"_node_* "/dev/shm/$job_graph"_edge_* \
          "/dev/shm/$job_graph"_[0-9]*_c[os][orc]_* "/dev/shm/$job_graph$job_graph"_[0-9]*_c[os][orc]_* ;;
    esac
  done
  [ "$#" -gt 0 ] || return 0
  # shellcheck disable=SC2012 # ls -ln has numbers only, up to the path at its end
  { LC_ALL=C ls -lnid -- "$@" 2>/dev/null; LC_ALL=C grep -s " $(job_shm_device) [0-9]*  */dev/shm/" /proc/[0-9]*/maps; } | LC_ALL=C awk '
    /^\/proc/ { split($1, p, "/"); if ($5 in path && !($5 in pid)) pid[$5] = p[3]; next }
    $2 ~ /^-/ { path[$1] = substr($0, index($0, " /dev/shm/") + 1); uid[$1] = $4; bytes[$1] = $6 }
    END { for (n in path) print uid[n], (n in pid ? pid[n] : "-"), bytes[n], n, path[n] }'
}

# job_end TOKEN GRACE [PGID...]: ends every process of the job: TERM, GRACE seconds (0.5 is one) later KILL, until none is left; the
# groups given are ended with it. 0 when none is left, 1 when some could not be ended within GRACE and 10 seconds.
job_end() {
  job_token=$1 job_grace=$2; shift 2
  job_groups=$*
  job_round TERM
  # In steps of 0.1 s: long enough to cost nothing, short enough that a job that obeys is gone at once.
  case $job_grace in *.*) job_left=${job_grace#*.} job_left=${job_left%"${job_left#?}"} ;; *) job_left=0 ;; esac
  job_left=$((${job_grace%%.*} * 10 + job_left))
  while job_alive; do
    if [ "$job_left" -le 0 ]; then
      [ "$job_left" -gt -100 ] || return 1
      job_round KILL
    fi
    job_left=$((job_left - 1))
    sleep 0.1 2>/dev/null || { sleep 1; job_left=$((job_left - 9)); }
  done
}
job_round() {
  # shellcheck disable=SC2046
  job_signal "$1" $(job_pids "$job_token")
  for job_group in $job_groups; do
    case $job_led in *" $job_group "*) ;; *) kill -s "$1" -- "-$job_group" 2>/dev/null ;; esac
  done
}
job_alive() {
  [ -z "$(job_pids "$job_token")" ] || return 0
  for job_group in $job_groups; do ! kill -s 0 -- "-$job_group" 2>/dev/null || return 0; done
  return 1
}
