# Finds host-agent on a host, or receives it, and becomes it. A shell there reads this as one line (see bootstrap.rs), so every command
# ends with a semicolon. It needs a POSIX sh and the programs cat, chmod, head, ls, mkdir, mv, rm and uname; gzip is optional. If a
# start-up file has emptied PATH, the usual directories replace it, for the agent, too.
# The tool sends two variables first: `token`, which marks the lines of this script among the output of the login shell, and `agents`,
# words of the form MACHINE=HASH. This script prints:
#   TOKEN need MACHINE gzip|plain      requests the agent, which arrives in pieces: a line with a length, and that many bytes
#   TOKEN took                         a piece was read, and the next may follow; a length of 0 ends the agent
#   TOKEN refused machine MACHINE      there is no agent for this machine
#   TOKEN refused folders TRIED        no directory can hold it and run it
# A file prints its own hash before it is used: it may be incomplete (after a loss of power), or its directory may now be noexec. A shell
# would run a file that is no program as a script, which may succeed.
# Nothing in a directory is run or written before `guarded` has found that only the user and root can change or replace it. It checks a
# path without links and all directories above it, so that other users cannot replace anything in it afterwards.
# In a user namespace that does not map root, root and all other users have the same uid, which / has too. It counts as root's only in /,
# /dev, /var and the directories above the user's home, `roots` in number, only where other users cannot create names (as in
# common/transfer/src/owner.rs), and not for the last components: $2 is their number.
# All requested bytes are read, because the bytes after them are for the agent. The tool waits before it sends more than a piece, because
# the head of busybox reads beyond its count.
# Only what this script makes has the umask 077: the processes of jobs inherit the umask of this shell.
# If the connection is lost, a write fails with a signal, and the received part of an agent is still removed.
# shellcheck disable=SC2154 # token and agents are sent in front of it
trap : PIPE;
echo;
if ! command -v uname >/dev/null; then PATH=${PATH:+$PATH:}/usr/bin:/bin; export PATH; fi;
machine=$(uname -s)-$(uname -m);
machine=${machine#Linux-};
hash=;
for agent in $agents; do
  case $agent in "$machine="*) hash=${agent#*=};; esac;
done;
if [ -z "$hash" ]; then echo "$token refused machine $machine"; exit 0; fi;
guarded() {
  above=$1; last=$2; open=; roots=0; set --;
  while [ -n "$above" ]; do
    set -- "$@" "$above";
    case ${above%/*}:${home:-/} in /dev:*|/var:*) roots=$((roots + 1));; *:"${above%/*}"/*) roots=$((roots + 1));; esac;
    if [ "$above" = "$home" ]; then above=; open=yes; else above=${above%/*}; fi;
  done;
  [ -z "$( { ls -ldn / "$@" 2>/dev/null || echo failed; } | {
    root=; missing=$(($# + 1));
    while read -r mode rest owner rest; do
      missing=$((missing - 1));
      if [ -z "$root" ]; then root=$owner; fi;
      if [ "$owner" = 0 ] || [ "$owner" = "$user" ] || [ "$missing" = "$#" ]; then :;
      elif [ "$owner" != "$root" ] || [ -n "$open" ] || [ "$missing" -lt "$last" ] || [ $(($# - missing)) -gt "$roots" ];
      then echo others own; fi;
      case $mode in (d????????[tT]*) open=yes;; (?????w*|????????w*) echo others write;; esac;
    done;
    if [ "$missing" != 0 ]; then echo no answer; fi; })" ];
};
physical() { cd -P "$1" 2>/dev/null && pwd -P; };
whole() { [ "$("$1" hash 2>/dev/null </dev/null)" = "$hash" ]; };
take() {
  while [ "$length" -gt 0 ]; do
    head -c "$length"; echo "$token took" >&3;
    read -r length || length=0;
  done;
};
set --;
if [ -n "${DGL_TOOLS_AGENT_DIR-}" ]; then set -- "$DGL_TOOLS_AGENT_DIR"; fi;
if [ -n "${XDG_CACHE_HOME-}" ]; then set -- "$@" "$XDG_CACHE_HOME/dgl-tools";
elif [ -n "${HOME-}" ]; then set -- "$@" "$HOME/.cache/dgl-tools"; fi;
own=dgl-tools-${LOGNAME:-${USER:-agent}};
user=unknown;
while read -r name uid rest; do
  if [ "$name" = Uid: ]; then own=dgl-tools-$uid; user=$uid; fi;
done 2>/dev/null </proc/self/status;
if [ -e /proc/self/uid_map ] && ! read -r rest </proc/self/uid_map; then user=unknown; fi;
home=$(physical "${HOME:-/}");
set -- "$@" "${TMPDIR:-/tmp}/$own" "/dev/shm/$own" "/var/tmp/$own";
for folder; do
  file=$(physical "$folder")/host-agent-$hash;
  if [ -f "$file" ] && guarded "$file" 2 && whole "$file"; then exec "$file" serve "$token"; fi;
done;
tried=;
for folder; do
  tried="$tried $folder";
  (umask 077; mkdir -p "$folder") 2>/dev/null;
  if [ -h "$folder" ] || [ ! -d "$folder" ] || [ ! -O "$folder" ]; then tried="$tried (not ours)"; continue; fi;
  folder=$(physical "$folder");
  if ! guarded "$folder" 1; then tried="$tried (others can write it or a directory above it)"; continue; fi;
  part=$folder/.$token;
  if (umask 077; echo : >"$part") 2>/dev/null && chmod 700 "$part" && "$part" 2>/dev/null; then :; else
    rm -f "$part"; tried="$tried (full, read-only or noexec)"; continue;
  fi;
  form=plain;
  if command -v gzip >/dev/null 2>&1; then form=gzip; fi;
  echo "$token need $machine $form";
  read -r length || { rm -f "$part"; exit 0; };
  if [ "$form" = gzip ]; then take | { gzip -dc >"$part" || cat >/dev/null; };
  else take | { cat >"$part" || cat >/dev/null; }; fi 3>&1 2>/dev/null;
  file=$folder/host-agent-$hash;
  if whole "$part" && mv -f "$part" "$file"; then exec "$file" serve "$token"; fi;
  rm -f "$part"; tried="$tried (it did not arrive whole, or does not run)";
done;
echo "$token refused folders $tried";
