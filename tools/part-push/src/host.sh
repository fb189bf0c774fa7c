# Receives files on a host. Sent in front of it: `base` (all files go below it) and `token`.
# From the sender: a line with a number, then as many bytes of sh text, which are run; what it calls may read on:
#   look LENGTH                          a list of paths, each ended by NUL
#   put ID BYTES MODE MTIME FILTER PATH  one file, in chunks: a line with a length, the bytes; length 0 ends it
#   folder ID PATH                       an empty folder
#   unpack                               a tar archive, in chunks, into a folder of our own
#   move N FOLDER                        what was unpacked in N goes to FOLDER
#   sums LENGTH                          as look, for checksums
# To the sender: `zstd yes|no`, `free KB`, `look B64`, `sums B64`, `done ID`, `failed ID TEXT`, `note TEXT`.
# A file is written under a name of our own on the same file system and then renamed: it is either whole or not there.

# shellcheck disable=SC2154 # base and token are sent in front of it
# shellcheck disable=SC2094 # err is looked at while it is written, on purpose

take() { # BYTES: exactly so many, and no byte that comes behind them
  [ "$1" -lt 65536 ] || dd bs=65536 count=$(($1 / 65536)) iflag=fullblock 2>/dev/null
  [ $(($1 % 65536)) -eq 0 ] || dd bs=$(($1 % 65536)) count=1 iflag=fullblock 2>/dev/null
}
chunks() {
  while read -r chunk && [ "$chunk" -gt 0 ]; do take "$chunk"; done
}
# What cannot be stored is read all the same, so that the next file begins where it should.
store() { cat >"$stage/file" || { cat >/dev/null; return 1; }; }
plain() { cat; }
unzstd() { zstd -dcq || { cat >/dev/null; return 1; }; }
why() { tail -n 1 "$stage/err" 2>/dev/null | tr -d '\r'; }

stamp() { # MTIME FILE: with the fraction of a second where touch knows it
  touch -d "@$1" "$2" 2>/dev/null || touch -d "@${1%.*}" "$2"
}

put() { # ID BYTES MODE MTIME FILTER PATH
  : >"$stage/err"
  chunks | "$5" 2>>"$stage/err" | store 2>>"$stage/err"
  if {
    [ "$(wc -c <"$stage/file")" -eq "$2" ] || { [ -s "$stage/err" ] || echo "it did not arrive whole" >&2; false; }
  } 2>>"$stage/err" && {
    mkdir -p -- "${6%/*}" && { [ ! -d "$6" ] || [ -h "$6" ] || { echo "is a folder there" >&2; false; }; } &&
      chmod "$3" "$stage/file" && { [ -z "$4" ] || stamp "$4" "$stage/file"; } && mv -f -- "$stage/file" "$6"
  } 2>>"$stage/err"; then
    echo "done $1"
  else
    echo "failed $1 $(why)"
  fi
  rm -f "$stage/file"
}

folder() { # ID PATH
  mkdir -p -- "$2" 2>"$stage/err" || echo "failed $1 $(why)"
}

unpack() {
  : >"$stage/err"
  rm -rf "$stage/batch"; mkdir "$stage/batch"
  chunks | { tar -xpof - -C "$stage/batch" || { cat >/dev/null; echo "note $(why)"; }; } 2>>"$stage/err"
}
move() { # N FOLDER
  { mkdir -p -- "$2" && cd "$stage/batch/$1" && find . -type f -exec sh -c 'mv -f -- "$@" "$0"' "$2" {} +; } 2>>"$stage/err" ||
    echo "note $(why)"
  cd /
}

look() {
  take "$1" >"$stage/list"
  printf 'look %s\n' "$(xargs -0 stat -c '%f %s %Y %y %n/' <"$stage/list" 2>/dev/null | base64 | tr -d '\n')"
}
sums() {
  take "$1" >"$stage/list"
  printf 'sums %s\n' "$(xargs -0 cksum <"$stage/list" 2>/dev/null | base64 | tr -d '\n')"
}

umask 022
export LC_ALL=C
existing=$base
while [ ! -d "$existing" ] && [ -n "$existing" ]; do existing=${existing%/*}; done
echo "free $(df -Pk -- "${existing:-/}" | awk 'NR == 2 { print $4 }')"
if command -v zstd >/dev/null 2>&1; then echo "zstd yes"; else echo "zstd no"; fi
if ! problem=$(mkdir -p -- "$base" 2>&1 && mkdir -- "$base/.part-push.$token" 2>&1); then
  echo "refused $problem"
  exit 1
fi
stage=$base/.part-push.$token
# however it ends, nothing of ours stays
trap 'cd /; rm -rf -- "$stage"' EXIT
trap 'exit 1' HUP INT TERM PIPE
echo ready
while read -r length; do
  eval "$(take "$length")"
done
