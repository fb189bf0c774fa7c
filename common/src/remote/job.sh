# What dgl-spawn and dgl-reap know about the processes of a job on a host. POSIX sh; /proc makes it Linux.
# A process belongs to a job by the token in the environment it was started with, never by the words of its command.

# job_pids TOKEN: the processes that carry the token, a word each. A zombie has no environment left and does not count.
job_pids() {
  # shellcheck disable=SC2013 # no blank is in /proc/PID/environ
  for job_file in $(LC_ALL=C grep -ls -- "DGL_TOOLS_TOKEN=$1" /proc/[0-9]*/environ); do
    job_file=${job_file#/proc/}
    printf '%s ' "${job_file%/environ}"
  done
}

# job_env PID NAME: the value that NAME had when PID was started.
job_env() {
  tr '\0\n' '\n ' <"/proc/$1/environ" 2>/dev/null | LC_ALL=C sed -n "s/^$2=//p" | head -n 1
}

# job_signal SIGNAL PID...: to each process, and to its whole group where it leads one (setsid gave it one of its own), so that
# a child that has thrown its environment away is met too.
job_signal() {
  job_sig=$1; shift
  for job_pid; do
    read -r job_stat 2>/dev/null <"/proc/$job_pid/stat" || continue
    # "PID (name) state ppid pgrp ...": the name may hold blanks and brackets, so cut behind the last one
    # shellcheck disable=SC2086
    set -- ${job_stat##*) }
    [ "$3" != "$job_pid" ] || kill -s "$job_sig" -- "-$job_pid" 2>/dev/null
    kill -s "$job_sig" "$job_pid" 2>/dev/null
  done
}

# job_shm PID...: the files in /dev/shm that these processes map, one a line.
job_shm() {
  for job_pid; do
    LC_ALL=C sed -n 's,^[^/]* \(/dev/shm/.*\)$,\1,p' "/proc/$job_pid/maps" 2>/dev/null
  done | LC_ALL=C sed 's, (deleted)$,,' | LC_ALL=C sort -u
}

# job_shm_remove: removes the files named on stdin that nobody maps any more, and prints how many that were. DGL unlinks its own at
# its end, but not always, and a process that was killed never does.
job_shm_remove() {
  job_count=0
  while IFS= read -r job_file; do
    [ -f "$job_file" ] || continue
    LC_ALL=C grep -qsF -- " $job_file" /proc/[0-9]*/maps && continue
    rm -f -- "$job_file" && job_count=$((job_count + 1))
  done
  echo "$job_count"
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
  for job_group in $job_groups; do kill -s "$1" -- "-$job_group" 2>/dev/null; done
  # shellcheck disable=SC2046
  job_signal "$1" $(job_pids "$job_token")
}
job_alive() {
  [ -z "$(job_pids "$job_token")" ] || return 0
  for job_group in $job_groups; do ! kill -s 0 -- "-$job_group" 2>/dev/null || return 0; done
  return 1
}
