# Gives what comes behind it a /dev/shm of its own: in a mount namespace, and for an ordinary user in a user namespace around that, in
# which the uid stays what it is. It is gone with the last process that sees it. Sent in front: `boot`, which reads the job's own script.
# shellcheck disable=SC2154

me=$(id -u) drop=
if [ "$me" = 0 ]; then
  set -- -m
else
  set -- -U --map-current-user --keep-caps -m
  # what it may mount with is not for the job
  setpriv --ambient-caps -all true 2>/dev/null && drop='setpriv --inh-caps -all --ambient-caps -all'
fi
# A slave still sees what is mounted on the host later, as homes are by autofs.
set -- "$@" --propagation slave sh -c "mount -t tmpfs -o nosuid,nodev,mode=1777 shm /dev/shm && exec $drop sh -c \"\$1\"" sh
if ! why=$(unshare "$@" : 2>&1 </dev/null); then
  printf 'fault no /dev/shm of its own can be made: %s\n' "$(printf %s "$why" | tr '\n' ' ')"
  read -r _
  echo ready
  read -r _
  exit
fi
exec unshare "$@" "$boot"
