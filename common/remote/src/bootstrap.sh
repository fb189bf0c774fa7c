# Finds or takes host-agent on a host, and becomes it. Read as one line by a shell there (see bootstrap.rs), so every command ends with a
# semicolon. POSIX sh, and of programs only cat, chmod, head, ls, mkdir, mv, rm, uname; gzip where it is there. Where a start-up file has
# emptied PATH, the usual directories take its place, for the agent too.
# In front of it: `token`, which marks our own lines among what the login shell says, and `agents`, words MACHINE=HASH.
#   TOKEN need MACHINE gzip|plain      asks for the agent, which comes in pieces: a line with a length, and so many bytes
#   TOKEN took                         a piece is read, and the next may come; a length of 0 ends the agent
#   TOKEN refused machine MACHINE      there is no agent for this machine
#   TOKEN refused folders TRIED        no directory can hold it and run it
# A file tells its own hash before it is used: it may be cut (a machine that lost its power), and its directory noexec by now. What is no
# program a shell would run as a script that succeeds.
# Nothing in a directory is run or written before `guarded` has found that only the user and root can change or replace it: a path without
# links is checked with all directories above it, and then nobody else can put something in its place.
# Whatever was asked for is read to its end, because what follows is for the agent. Nothing may follow a piece before it is read: the head
# of busybox reads beyond its count.
# When nobody reads any longer, which a signal tells who writes, the part of an agent that came is still removed.
# shellcheck disable=SC2154 # token and agents are sent in front of it
umask 077;
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
  above=$1; set --;
  while [ -n "$above" ]; do
    set -- "$@" "$above";
    if [ "$above" = "$home" ]; then above=; else above=${above%/*}; fi;
  done;
  [ -z "$( { ls -ldn / "$@" 2>/dev/null || echo failed; } | {
    trusted=; missing=$(($# + 1));
    while read -r mode rest owner rest; do
      missing=$((missing - 1));
      trusted=${trusted:-" 0 $user $owner "};
      case $mode in (d????????[tT]*) ;; (?????w*|????????w*) echo others write;; esac;
      case $trusted in (*" $owner "*) ;; (*) echo others own;; esac;
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
home=$(physical "${HOME:-/}");
set -- "$@" "${TMPDIR:-/tmp}/$own" "/dev/shm/$own" "/var/tmp/$own";
for folder; do
  file=$(physical "$folder")/host-agent-$hash;
  if [ -f "$file" ] && guarded "$file" && whole "$file"; then exec "$file" serve "$token"; fi;
done;
tried=;
for folder; do
  tried="$tried $folder";
  mkdir -p "$folder" 2>/dev/null;
  if [ -h "$folder" ] || [ ! -d "$folder" ] || [ ! -O "$folder" ]; then tried="$tried (not ours)"; continue; fi;
  folder=$(physical "$folder");
  if ! guarded "$folder"; then tried="$tried (others can write it or a directory above it)"; continue; fi;
  part=$folder/.$token;
  if (echo : >"$part") 2>/dev/null && chmod 700 "$part" && "$part" 2>/dev/null; then :; else
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
