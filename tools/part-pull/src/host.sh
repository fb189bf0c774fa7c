# Hands out files of a host. Sent in front of it: call.sh and `base`; all paths are relative to it.
# From the sender: lines of sh text that call what is defined here; lists of paths, each ended by NUL, stand behind the line.
# To the sender: `names B64` (a list of paths), `look B64`, `sums B64`, `prefix CRC BYTES`, and files as raw bytes behind the line $raw_mark;
# behind them `archived` with a word if not all could be read, or `rest` with the number of bytes that could not.
# Nothing is written on the host.

# shellcheck disable=SC2154 # base and raw_mark are sent in front of it

names() { # FOLDER-OR-FILE...: the files there and below; no link is followed, and part-push's own are none
  printf 'names '
  find "$@" -name '.part-push.*' -prune -o -type f -print0 2>/dev/null | base64 | tr -d '\n'
  echo
}
look() { # BYTES of paths
  printf 'look '
  take "$1" 2>/dev/null | xargs -0 stat -c '%f %s %Y %y %n/' 2>/dev/null | base64 | tr -d '\n'
  echo
}
raw() { # what comes next are bytes, perhaps many
  [ "$wide" ] || widen 1
  wide=1
  echo "$raw_mark"
}
archive() { # BYTES of paths: all of them, as tar archives one behind the other
  raw
  # stdout may be a terminal in raw mode (srun --unbuffered), which tar refuses
  failed=$({ { take "$1" 2>/dev/null | xargs -0 tar -cf - 2>/dev/null || echo failed >&4; } | cat >&3; } 4>&1)
  echo
  echo "archived $failed"
}
sums() { # BYTES of paths: what they read as
  printf 'sums '
  take "$1" 2>/dev/null | xargs -0 cksum 2>/dev/null | base64 | tr -d '\n'
  echo
}
prefix() { # BYTES PATH: what it begins with
  printf 'prefix %s\n' "$(head -c "$1" "$2" | cksum)"
}
rest() { # BLOCK BLOCKS BYTES PATH: exactly so many from there on, zeros for what cannot be read
  raw
  lacking=$(($2 * 65536 + $3))
  if [ "$counts" ]; then
    said=$(part "$@" 2>&1 <"$4" >&3)
    while read -r number what rest; do
      case $what in byte | bytes) lacking=$((lacking - number)) ;; esac
    done <<EOF
$said
EOF
    head -c "$lacking" /dev/zero
  else
    failed=$({ { part "$@" 2>/dev/null <"$4" || echo failed >&4; cat /dev/zero 2>/dev/null; } | head -c "$lacking" >&3; } 4>&1)
    [ "$failed" ] || lacking=0
  fi
  echo
  echo "rest $lacking"
}
part() { dd bs=65536 skip="$1" count="$2" && dd bs=$(($3 + 1 - ($3 > 0))) count=$(($3 > 0)); }

export LC_ALL=C
missing=
for tool in base64 dd find head stat tar tr xargs; do command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"; done
[ -z "$missing" ] || { echo "note the host lacks$missing"; exit 1; }
# shellcheck disable=SC2088 # it comes as it was given, and means the home here
case $base in '~' | '~/'*) base=$HOME${base#'~'} ;; esac
cd -- "$base" 2>/dev/null || { echo "note there is no folder $base"; exit 1; }
# dd says how many bytes they were; that of some busyboxes does not
counts=
case $(dd count=0 2>&1 </dev/null) in *bytes*) counts=1 ;; esac
exec 3>&1
wide=
echo ready
while IFS= read -r line; do eval "$line"; done
