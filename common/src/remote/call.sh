# What a script needs to be called line by line, as `Running::call` does, with data behind a line. POSIX sh.

# for words that hold one
# shellcheck disable=SC2034
nl='
'
# Between sshd and this a pipe holds 64 KiB. Of what does not fit, sshd writes a little now and then and moves the rest about in its memory:
# with 1 MiB, as much as an ordinary user may have, copying takes a fifth less of all processors. It needs a program to say so; without one
# it stays as it is.
widen() { # FD
  # F_SETPIPE_SZ
  perl -e 'fcntl STDIN, 1031, 1 << 20' <&"$1" || python3 -c 'import fcntl; fcntl.fcntl(0, 1031, 1 << 20)' <&"$1" || :
} 2>/dev/null
take() { # BYTES: exactly so many, and no byte that comes behind them; up to 1 MiB with one process
  [ "$1" -gt 0 ] || return 0
  [ "$1" -gt 1048576 ] || { dd bs="$1" count=1 iflag=fullblock; return; }
  blocks $(($1 / 65536)) $(($1 % 65536))
}
blocks() { # BLOCKS BYTES: so many of 64 KiB, and bytes behind them; for more than 2^31, to which some shells count
  dd bs=65536 count="$1" iflag=fullblock || return
  [ "$2" -eq 0 ] || dd bs="$2" count=1 iflag=fullblock
}

