#!/bin/bash
# Sees to it that this machine has the programs that tests and demo need: as root on a system with apt they are installed,
# otherwise one line names them. Exit status 69: something is missing.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # sshd and ip: not on every user's PATH

missing=()
need() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null && return
    [[ " ${missing[*]-} " == *" $2 "* ]] || missing+=("$2")
}
need sshd openssh-server
need ssh openssh-client
need ip iproute2
need ps procps
need pgrep procps
need unshare util-linux
need jq jq
need busybox busybox
need gcc gcc
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "need.sh: missing here, under their Debian names: ${missing[*]}; install them and try again" >&2
    exit 69
fi
command="apt-get install -y --no-install-recommends ${missing[*]}"
if [ "$(id -u)" != 0 ]; then
    echo "need.sh: packages are missing: sudo $command" >&2
    exit 69
fi

export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -o DPkg::Lock::Timeout=600 "$@" >&2; }
for try in 1 2 3; do
    apt update && apt install -y --no-install-recommends "${missing[@]}" && exit 0
    echo "need.sh: apt-get failed, try $try of 3" >&2
    sleep $((try * 5))
done
echo "need.sh: packages are missing and apt-get cannot install them: $command" >&2
exit 69
