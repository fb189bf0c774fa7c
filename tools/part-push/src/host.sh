# Receives files on a host. Sent in front of it: call.sh, `base` (all files go below it), `run` (one word a push), `me` (the host's id),
# `dry`, `fsync` and `lane` (empty for no). A lane is one more connection of the same push to the same host, for ranges of large files.
# From the sender: lines of sh text that call what is defined here, an empty one now and then while there is nothing to do; data stand
# behind the line that takes them. To the sender: `free KB`, `has TOOL`, `empty` (base is), `peers ID...`, `look B64`, `sums B64`,
# `partial KEY CRC BYTES`, `claimed`, `parallel`, `got`, `got none` (of a batch), `failed ID TEXT`, `note TEXT`.
#
# All that is ours lies in `base`, on the same file system as what it becomes, so that a file is renamed into its place whole:
#   .part-push.RUN.ID  the stage of this push on this host; gone at its end, however it ends
#   .part-push.lock    a link that names the push that is at work; on shared storage its hosts go in together, others wait
#   .part-push.kept/   what arrived of large files before a push was interrupted

# shellcheck disable=SC2154 # base, run, me, dry and fsync are sent in front of it

say() { printf '%s\n' "$*"; }
# a disk that is full leaves no room for a file with the reason in it, so reasons are kept in variables
reason() { printf '%s\n' "$1" | sed '/^[0-9]*+[0-9]* records /d; / copied, /d; /^$/d' | tail -n 1 | tr -d '\r'; }
# What can no longer be put right: the sender marks all that is not done yet with the reason.
die() { say "note $(reason "$1")"; exit 1; }

chunks() { # each a line with a length and the bytes; 0 ends it
  while read -r chunk && [ "$chunk" -gt 0 ]; do take "$chunk" 2>/dev/null || return; done
}
flush() { [ -z "$fsync" ] || busy sync_all "$@"; }
sync_all() { sync -- "$@" 2>/dev/null || sync; }
sync_below() { find . -type f -exec sync -- {} + 2>/dev/null || sync; }
busy() { # COMMAND...: while it runs it is no matter that nothing comes
  [ "$dry" ] || true >"$stage/busy"
  "$@"
  [ "$dry" ] || rm -f "$stage/busy"
}

much() { much=1; widen 0; } # the sender has much to send

# --- one large file ---

part() { part=$stage/part.$1; true >>"$part"; } # KEY: the file that data go to
plain() { err=$(take "$1" 2>&1 >>"$part") || die "$err"; say got; }
packed() { err=$({ chunks | zstd -dcq >>"$part"; } 2>&1) || die "$err"; say got; }
# Several connections write one file, each a range of it: `parallel` says where they begin, and what is before is whole; `joined`, that all
# ranges are there. No range is sent before `parallel` was answered: this connection could still be about to make the file anew.
parallel() { err=$({ printf '%s' "$2" >"$stage/good.$1"; } 2>&1) || die "$err"; say parallel; } # KEY OFFSET
joined() { rm -f "$stage/good.$1"; }               # KEY
range() { # KEY BLOCK BLOCKS BYTES: so many blocks of 64 KiB from one on, and bytes behind them
  [ -f "$stage/part.$1" ] || die "the file that a range belongs to is gone"
  put "$1" "$2" "$3" bs=65536
  # seek counts in blocks of what is written
  put "$1" $(($2 + $3)) $(($4 > 0)) ibs="$4" obs=65536
  say got
}
put() { # KEY AT COUNT SIZES: blocks
  [ "$3" -gt 0 ] || return 0
  whole=$stage/part.$1 at=$2 count=$3; shift 3
  # what comes short is no error to dd
  err=$(dd of="$whole" conv=notrunc seek="$at" count="$count" iflag=fullblock "$@" 2>&1)
  case $err in "$count+0 records in"*) ;; *) err=$(reason "$err"); die "${err:-a part of a file broke off}" ;; esac
}
keep() { # ID KEY BYTES MODE MTIME FOLDER NAME: the file is whole
  whole=$stage/part.$2
  err=$({
    # as words: some shells count to 2^31
    # shellcheck disable=SC2046
    [ $(wc -c <"$whole") = "$3" ] || { echo "it did not arrive whole" && exit 1; }
    # within a folder `mv` puts nothing through a link, and nothing into a folder of that name
    chmod "$4" "$whole" && { [ -z "$5" ] || stamp "$5" "$whole"; } && flush "$whole" && inside "$6" &&
      mkdir "$stage/one" && mv -- "$whole" "$stage/one/$7" && mv -f -- "$stage/one/$7" "$6/" && flush "$6"
  } 2>&1) || say "failed $1 $(reason "$err")"
  rm -rf "$stage/one" "$whole"
  [ ! -d "$kept" ] || rm -f "$kept/${2%%.*}".*
}
drop() { [ ! -e "$stage/part.$1" ] || rm -f "$stage/part.$1"; } # KEY
stamp() { # MTIME FILE: with the fraction of a second where touch knows it
  touch -d "@$1" "$2" 2>/dev/null || touch -d "@${1%.*}" "$2"
}
claim() { # KEY...: what an earlier push has left of these; renaming it makes sure that no other push goes on with it too
  for key; do
    [ -f "$stage/part.$key" ] || { [ -f "$kept/$key" ] && mv -- "$kept/$key" "$stage/part.$key" 2>/dev/null; } || continue
    true >"$stage/busy"
    say "partial $key $(cksum <"$stage/part.$key")"
  done
  [ ! -e "$stage/busy" ] || rm -f "$stage/busy"
  say claimed
}

folder() { # ID FOLDER: an empty one
  err=$(inside "$2" 2>&1) || say "failed $1 $(reason "$err")"
}

# Hands a file on: reads where it goes here and the command that reaches the next host, or `-`; what the hosts behind it have to know;
# an empty line; the file. It runs on every host of the chain, and is handed on as $0.
# shellcheck disable=SC2016 # its own words
hop='IFS= read -r part; IFS= read -r next
on() { while IFS= read -r line && [ "$line" ]; do printf "%s\n" "$line"; done; echo; exec tee -- "$part"; }
if [ "$next" = - ]; then read -r line; exec cat >"$part"; else on | eval "$next"; fi'
hand() { # BLOCKS BYTES, with all that stands in front of the file
  err=$(blocks "$1" "$2" 2>/dev/null | { sh -c "$hop" "$hop" 2>&1 || cat >/dev/null; }) || true
  [ -z "$err" ] || note "$err"
  say got
}

# --- many small files ---

unpack() { # plain BYTES | packed: a tar archive with a folder of ours for each of theirs
  rm -rf "$stage/batch"; mkdir "$stage/batch"
  err=$({
    case $1 in
      plain) take "$2" 2>/dev/null ;;
      packed) chunks | { zstd -dcq || cat >/dev/null; } ;;
    # what tar does not take is read all the same, so that the next line is found where it stands
    esac | { [ ! "$much" ] || widen 0; tar -xpof - -C "$stage/batch" || { cat >/dev/null; exit 1; }; }
  } 2>&1) && say got && return
  # where it broke off there is half a file, with any name
  note "$err"
  rm -rf "$stage/batch"
  say "got none"
}
note() { printf '%s\n' "$1" | tail -n 20 | sed 's/^/note /'; }
remove() { rm -f -- "$stage/batch/$1"; } # N/NAME
move() { # N FOLDER: what was unpacked in N goes to FOLDER; it becomes that folder where there is none, with one rename for all files
  [ -d "$stage/batch/$1" ] || return
  # shellcheck disable=SC2016 # the inner shell's words
  err=$({
    cd "$stage/batch/$1" && { [ -z "$fsync" ] || busy sync_below; } || exit
    above=${2%/*}/ new=$stage/batch/new.$1
    [ -e "$2" ] || [ -h "$2" ] || {
      inside "$above" && mkdir "$new" && mv -- "$stage/batch/$1" "$new/${2##*/}" || exit
      # when there is one after all, this puts nothing into it
      mv -- "$new/${2##*/}" "$above" 2>/dev/null && flush "$2" && flush "$above" && exit
    }
    # where this shell stands has moved along
    inside "$2" && find . -type f -exec sh -c 'mv -f -- "$@" "$0/"' "$2" {} + && flush "$2"
  } 2>&1) || note "$err"
}

# --- what is there ---

look() { busy look_at "$1"; } # BYTES of paths, each ended by NUL
look_at() {
  printf 'look '
  if [ "$has_stat" ]; then
    take "$1" 2>/dev/null | xargs -0 stat -c '%f %s %Y %y %n/' 2>/dev/null
  else
    # shellcheck disable=SC2016 # the inner shell's words
    take "$1" 2>/dev/null | xargs -0 sh -c 'for f; do
      if [ -h "$f" ]; then continue; elif [ -d "$f" ]; then bytes=0; elif [ -f "$f" ]; then bytes=$(wc -c <"$f"); else continue; fi
      printf "? %d ? ? ? ? %s/\n" "$bytes" "$f"; done' sh
  fi | base64 | tr -d '\n'
  echo
}
sums() { busy sum_up "$1"; } # the same for checksums
sum_up() {
  printf 'sums '
  take "$1" 2>/dev/null | xargs -0 cksum 2>/dev/null | base64 | tr -d '\n'
  echo
}

peers() { # the hosts of this push whose stage is seen from here
  mkdir "$stage.new" && rmdir "$stage.new" # makes a network file system look again
  printf peers
  for theirs in "$base/.part-push.$run".*; do printf ' %s' "${theirs##*.}"; done
  echo
}

# --- places ---

real() { # FOLDER: where it truly is, in $real, even when its name ends with a newline
  real=$(cd -P -- "$1" && pwd -P && echo .) && real=${real%??}
}
inside() { # FOLDER: makes it, unless a link leads out of base on the way
  up=$1
  while [ ! -d "$up" ]; do up=${up%/*} up=${up:-/}; done
  real "$up" || return
  case ${real%/}/ in
    "${root%/}"/*) [ -d "$1" ] || mkdir -p -- "$1" ;;
    *) echo "$1 leads out of $base by a link" && return 1 ;;
  esac
}
empty() { # whether nothing is in base but what is ours
  [ ! -d "$base" ] || [ -r "$base" ] || return
  for entry in "$base"/* "$base"/.[!.]* "$base"/..?*; do
    case ${entry##*/} in
      .part-push.*) ;;
      *) [ ! -e "$entry" ] && [ ! -h "$entry" ] || return ;;
    esac
  done
}
dead() { # STAGE: whether the push that made it has ended: processes are seen on this host, and on others how long nothing was touched
  there='' boot='' pid=''
  { read -r there boot pid <"$1/owner"; } 2>/dev/null
  # two hosts of one push may have the same name
  case $1 in */".part-push.$run".*) there= ;; esac
  case $there in
    "$machine") [ "$boot" != "$life" ] || [ ! -d "/proc/$pid" ] ;;
    *) [ "$(find "$1" -prune -mmin +2 2>/dev/null)" ] ;;
  esac
}
at_work() { # RUN: whether any host of that push is
  for theirs in "$base/.part-push.$1".*; do
    [ ! -d "$theirs" ] || dead "$theirs" || return 0
  done
  return 1
}
programs() { # RUN.ID: those that work for it; a shell carries no mark
  # shellcheck disable=SC2013 # no blank is in /proc/PID/environ
  for pid in $(PART_PUSH='' grep -ls "PART_PUSH=$1\\." /proc/[0-9]*/environ); do pid=${pid#/proc/}; echo "${pid%/environ}"; done
}
salvage() { # STAGE: takes it away; what is worth going on with is kept
  for old in "$1"/part.*; do
    good=$1/good.${old##*/part.}
    if [ -r "$good" ]; then
      # a lane may still write what has reached it
      tries=0
      while pids=$(programs "${1##*/.part-push.}") && [ "$pids" ] && [ "$tries" -lt 100 ]; do
        for pid in $pids; do kill -s KILL "$pid" 2>/dev/null; done
        tries=$((tries + 1))
      done
      dd if=/dev/null of="$old" bs=1 seek="$(cat "$good")" count=0 2>/dev/null
    fi
    [ ! -f "$old" ] || [ -n "$(find "$old" -prune -size -2048)" ] || { mkdir -p "$kept" && mv -f -- "$old" "$kept/${old##*/part.}"; }
  done
  rm -rf -- "$1"
}
unlock() { # RUN: takes its lock away; somebody else may have done so just now, and have another there
  mv -- "$lock" "$stage.lock" 2>/dev/null || return 0
  moved=$(readlink "$stage.lock")
  rm -f "$stage.lock"
  [ "$moved" = "$1" ] || ln -s "$moved" "$lock" 2>/dev/null || return 0
}
enter() {
  { [ -d "$base" ] || mkdir -p -- "$base"; } && mkdir -- "$stage" && echo "$machine $life $self" >"$stage/owner" && true >"$stage/mark" || return
  tries=0
  until ln -s "$run" "$lock" 2>/dev/null || [ "$(readlink "$lock")" = "$run" ]; do
    holder=$(readlink "$lock")
    [ "$holder" ] || break # it has gone just now, or links are not known here
    at_work "$holder" || unlock "$holder"
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || { echo "another push is at work in $base" && return 1; }
    sleep 0.5 2>/dev/null || sleep 1
  done
  for old in "$base"/.part-push.*.*; do [ ! -d "$old" ] || ! dead "$old" || salvage "$old"; done
  [ ! -d "$kept" ] || find "$kept" -type f -mtime +7 -exec rm -f {} +
}
leave() {
  cd /
  trap - EXIT
  kill "$watcher" 2>/dev/null
  salvage "$stage"
  [ ! -d "$kept" ] || rmdir "$kept" 2>/dev/null
  at_work "$run" || [ "$(readlink "$lock")" != "$run" ] || rm -f "$lock"
}
watch() { # a lost network tells nobody: when nothing has come for a minute, all of ours ends, and with it what waits for data
  trap 'kill "$nap" 2>/dev/null; exit' TERM
  quiet=0
  while sleep 20 & nap=$!; wait "$nap"; do
    [ -d "/proc/$self" ] || { leave; return; }
    # before the first line come the logins of all hosts
    if [ -e "$stage/busy" ] || [ ! -e "$stage/heard" ] || [ "$(find "$stage" -newer "$stage/mark" | head -n 1)" ]; then quiet=0; else quiet=$((quiet + 1)); fi
    touch "$stage" "$stage/mark"
    [ "$quiet" -lt 3 ] || {
      for pid in $(programs "$run.$me"); do kill "$pid"; done
      kill "$self"
    }
  done
}

survey() { # what the host has
  missing=
  for tool in dd find sed tail tr wc xargs; do command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"; done
  [ -z "$missing" ] || die "the host lacks$missing"
  existing=$base
  while [ ! -d "$existing" ] && [ -n "$existing" ]; do existing=${existing%/*}; done
  df -Pk -- "${existing:-/}" | { read -r _; read -r _ _ _ free _; say "free $free"; }
  for tool in zstd tar cksum; do if command -v "$tool" >/dev/null 2>&1; then say "has $tool"; fi; done
  has_stat=
  if stat -c %f / >/dev/null 2>&1; then has_stat=1; fi
}
occupy() { # from here on base is this push's
  # $$ is the shell around this one
  read -r self _ </proc/self/stat
  read -r machine </proc/sys/kernel/hostname
  read -r life </proc/sys/kernel/random/boot_id
  life=$life$(readlink /proc/self/ns/pid)
  err=$(enter 2>&1) || { err=$(reason "$err"); rm -rf -- "$stage"; die "$err"; }
  real "$base" && root=$real
  watcher=
  trap leave EXIT
  trap 'exit 1' HUP INT TERM PIPE
  watch </dev/null >/dev/null 2>&1 & watcher=$!
}

umask 022
export LC_ALL=C PART_PUSH="$run.$me."
stage=$base/.part-push.$run.$me lock=$base/.part-push.lock kept=$base/.part-push.kept
if [ -z "$lane" ]; then
  survey
  [ "$dry" ] || occupy
  if empty; then say empty; fi
  much=
else
  # a lane ends when the push has ended here: after a lost network nobody tells it
  read -r self _ </proc/self/stat
  { trap 'kill "$nap" 2>/dev/null; exit' TERM; while sleep 20 & nap=$!; wait "$nap"; do [ -d "$stage" ] || { kill "$self"; exit; }; done; } \
    </dev/null >/dev/null 2>&1 & watcher=$!
  trap 'kill "$watcher" 2>/dev/null' EXIT
  trap 'exit 1' HUP INT TERM PIPE
  much
fi
say ready
while IFS= read -r line; do
  [ "$dry" ] || true >"$stage/heard"
  eval "$line"
done
