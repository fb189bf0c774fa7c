# What a script needs to be called line by line, as `Running::call` does, with data behind a line. POSIX sh.

# for words that hold one
# shellcheck disable=SC2034
nl='
'
take() { # BYTES: exactly so many, and no byte that comes behind them; up to 1 MiB with one process
  [ "$1" -gt 0 ] || return 0
  [ "$1" -gt 1048576 ] || { dd bs="$1" count=1 iflag=fullblock; return; }
  dd bs=65536 count=$(($1 / 65536)) iflag=fullblock || return
  [ $(($1 % 65536)) -eq 0 ] || dd bs=$(($1 % 65536)) count=1 iflag=fullblock
}

