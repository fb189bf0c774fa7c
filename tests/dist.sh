#!/bin/bash
# What `make dist` has made for this machine's type, on systems that have nothing else: see usage().
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
cd "$(dirname "$(readlink -f "$0")")/.."

usage() {
    cat <<EOF2
dist.sh

Tries what lies in target/dist, each as its user would: the tarball in a directory with busybox alone and on a bare Debian 12,
there too the Debian package, by apt, and the wheel, by pip; then the image of packaging/Containerfile, if there is podman.
Each copies a file to a host and runs a job there, which is that system itself. Needs root, busybox (static) and debootstrap.

Environment:
  BARE_DIR   where the systems are made (now ${BARE_DIR:-target/bare}); the Debian is made once
  RUNTIME    what podman runs containers with, such as runc, if its default does not work here
  MIRROR     Debian's archive; without it, what this machine's apt fetches Debian 12 from
EOF2
}

die() { echo "dist.sh: $1" >&2; exit "${2:-69}"; }

# What is run in each system, with the tools in PATH: POSIX sh.
# shellcheck disable=SC2016
trial='
set -e
export DGL_TOOLS_CONNECT=local HOME=/root
rm -rf /tmp/trial; mkdir -p /tmp/trial /root; cd /tmp/trial
echo 127.0.0.1 >ip_config.txt
echo content >file
ipconf-check ip_config.txt | part-map --workspace "$PWD/ws" --extra file | part-push >/dev/null
cmp file ws/file
ipconf-check ip_config.txt | dgl-env --workspace "$PWD/ws" --role worker --num-workers 2 -- sh -c "cat file" | dgl-spawn --format human >out
[ "$(grep -c "content$" out)" = 2 ]'

# Runs a script by sh in the system in a directory, with processes and mounts of its own.
in_system() { # FOLDER PATH SCRIPT
    # shellcheck disable=SC2016
    timeout 600 unshare --mount --propagation private --pid --ipc --fork --kill-child sh -c '
        for file in dev proc sys; do mkdir -p "$1/$file"; done
        mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount -t sysfs sysfs "$1/sys" &&
            exec chroot "$1" /bin/sh -c "PATH=$2; export PATH; $3"' sh "$@"
}

tried() { echo "dist.sh: $1: copied a file and ran a job"; }

if [ $# != 0 ]; then usage; exit; fi
# shellcheck source=tests/debian.sh disable=SC1091
. tests/debian.sh
[ "$(id -u)" = 0 ] || die "only root can enter another system: run it as root"
for command in busybox debootstrap; do command -v "$command" >/dev/null || die "$command is missing: apt-get install $command"; done

dist=$(realpath "${CARGO_TARGET_DIR:-target}/dist")
dir=$(realpath -m "${BARE_DIR:-${CARGO_TARGET_DIR:-target}/bare}")
machine=$(uname -m)
deb=$(find "$dist" -name "dgl-tools_*_$(dpkg --print-architecture).deb")
tarball=$(find "$dist" -name "dgl-tools-*-$machine-linux.tar.gz")
[ -n "$deb" ] || die "there is nothing for $machine in $dist: make dist" 1
(cd "$dist" && sha256sum --quiet -c SHA256SUMS)

busybox=$dir/busybox
rm -rf "$busybox"
mkdir -p "$busybox/bin" "$busybox/opt" "$busybox/tmp" "$busybox/etc"
cp "$(command -v busybox)" "$busybox/bin/"
chroot "$busybox" /bin/busybox --install -s /bin || die "this busybox is not static: apt-get install busybox-static"
cp "$tarball" "$busybox/opt/tools.tar.gz"
in_system "$busybox" /opt/bin:/bin "cd /opt && tar xzf tools.tar.gz && mv dgl-tools-* dgl-tools && PATH=/opt/dgl-tools/bin:/bin; $trial"
tried "tarball, busybox"
rm -rf "$busybox"

debian=$dir/dist-debian
[ -d "$debian" ] || make_debian "$debian" python3-venv
reach_archive "$debian"
rm -rf "$debian/opt" "$debian/srv"
mkdir -p "$debian/opt/dgl-tools" "$debian/srv"
cp "$dist"/* "$debian/srv/"
tar xzf "$tarball" -C "$debian/opt/dgl-tools" --strip-components 1
in_system "$debian" /opt/dgl-tools/bin:/usr/bin:/bin "$trial"
tried "tarball, Debian 12"
in_system "$debian" /usr/bin:/bin:/usr/sbin:/sbin "apt-get install -y --no-install-recommends /srv/${deb##*/} >/srv/log 2>&1 ||
    { cat /srv/log; exit 1; }; $trial; dpkg --verify dgl-tools; apt-get purge -y dgl-tools >/srv/log 2>&1; ! command -v part-push"
tried "Debian package, Debian 12"
in_system "$debian" /venv/bin:/usr/bin:/bin "rm -rf /venv; python3 -m venv /venv
    pip install --quiet --no-index /srv/dgl_tools-*_$machine.whl; $trial"
tried "wheel, Debian 12"
rm -rf "${debian:?}/srv" "${debian:?}/venv"

# The image, and a container of it as a host.
if ! command -v podman >/dev/null; then
    echo "dist.sh: skipped: there is no podman to try packaging/Containerfile with"
    exit
fi
store=$dir/images
# its locks in files, in place of shared memory that would stay
printf '[engine]\nlock_type = "file"\n' >"$dir/containers.conf"
export CONTAINERS_CONF=$dir/containers.conf
container=dgl-tools-dist-$$
# A store of its own, which can be thrown away; and low limits, because even root may not be allowed to raise them here.
engine() {
    podman --root "$store" --runroot "$store/run" --storage-driver vfs --cgroup-manager cgroupfs \
        ${RUNTIME:+--runtime "$RUNTIME"} "$@"
}
{
    tar -C "$debian" --one-file-system -c . | engine import - localhost/debian:12 &&
        engine build --isolation chroot --network host --build-arg BASE=localhost/debian:12 -t localhost/dgl-tools \
            -f packaging/Containerfile "$dist"
} >"$dir/image.log" 2>&1 || { tail -n 20 "$dir/image.log" >&2; die "no image" 1; }
engine run --detach --rm --network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --name "$container" localhost/dgl-tools sleep infinity >/dev/null
trap 'engine rm -f -t 0 "$container" >/dev/null' EXIT
engine exec -i "$container" sh -c "$trial"
tried "image, inside"
