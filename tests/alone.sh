#!/bin/sh
# Runs one test where it sees no processes and no shared memory but its own: nextest begins each with this. What a test leaves, which
# the preflight of a job would refuse, is in nobody's way then, and ends with the test.
set -eu
namespaces='--pid --ipc --mount --fork --kill-child --mount-proc'
[ "$(id -u)" = 0 ] || namespaces="--user --map-current-user --keep-caps $namespaces"
# Its pid is the next one after that of this shell, as outside: names that are made with it stay its own. The inner shell stays, because
# somebody has to wait for orphans, and keeps the capabilities of an ordinary user's namespace for itself.
status=0
# shellcheck disable=SC2016,SC2086 # it is for the inner shell; they are words
unshare $namespaces sh -c '
  mount -t tmpfs -o mode=1777 shm /dev/shm || exit 1
  echo "$0" 2>/dev/null >/proc/sys/kernel/ns_last_pid
  setpriv --ambient-caps=-all --inh-caps=-all "$@"
  exit $?' $$ "$@" || status=$?
# this status is that of unshare: tests end with 0, or 101
[ "$status" = 1 ] || exit "$status"
echo "not alone: no namespaces can be made here, so jobs of other tests may be in the way" >&2
exec "$@"
