#!/bin/sh
# Sees to it that the system packages are there that building, testing and rehearsing need. As root on a Debian it installs what is
# missing; otherwise it names the one command that does.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
need() { # COMMAND PACKAGE
  command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need cc gcc
need make make
need ssh openssh-client
need sshd openssh-server
need ip iproute2
need pgrep procps
need unshare util-linux
need jq jq
need busybox busybox
need mandoc mandoc
need tmux tmux
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "need.sh: packages are missing; install them first: sudo apt-get install -y$missing" >&2
  exit 69
fi
# shellcheck disable=SC2086 # a word a package
for try in 1 2 3; do
  if apt-get -o DPkg::Lock::Timeout=600 update -q &&
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -q --no-install-recommends $missing; then
    exit 0
  fi
  echo "need.sh: apt-get failed, try $try of 3" >&2
  sleep $((try * 5))
done
exit 69
