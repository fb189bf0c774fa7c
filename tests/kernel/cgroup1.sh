# Control groups of version 1.
# shellcheck shell=bash disable=SC2154
# shellcheck source=tests/kernel/memory-runs-out.sh
. "$root/tests/kernel/memory-runs-out.sh"

try_cgroup1() {
    prepare
    guest 'mount -t tmpfs cgroup /sys/fs/cgroup; mkdir /sys/fs/cgroup/memory; mount -t cgroup -o memory memory /sys/fs/cgroup/memory'
    in_version 1 /sys/fs/cgroup/memory memory.limit_in_bytes
}
