# Control groups of version 2; before there are any, all of the machine's memory.
# shellcheck shell=bash disable=SC2154
# shellcheck source=tests/kernel/memory-runs-out.sh
. "$root/tests/kernel/memory-runs-out.sh"

try_cgroup2() {
    prepare
    probe
    kills_are_told "no control group"
    guest 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; echo +memory >/sys/fs/cgroup/cgroup.subtree_control'
    in_version 2 /sys/fs/cgroup memory.max
}
