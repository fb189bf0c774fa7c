#!/bin/bash
# Trials that need a kernel of one's own: see usage() for what it does. How it is built:
#
#   this machine, in namespaces of its own               a machine with a kernel of its own, under QEMU
#   10.78.0.1: the tools, and host 1 of jobs  -- tap0 -- eth0  10.78.0.2: host 0 of jobs
#
# The machine is Debian 12 in a disk image that no run changes; its init is tests/kernel/init, and all that is tried there goes over
# ssh. When the trials end, however that comes, the kernel ends all that is in their namespaces, QEMU too.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
me=$(readlink -f "$0")
root=$(dirname "$(dirname "$me")")
RATE=${RATE:-20mbit}
trials=(clock far cgroup2 numa proc namespaces cgroup1 yama)

usage() {
    cat <<EOF2
kernel.sh [TRIAL...] [shell]

Boots a Debian 12 with a kernel of its own under QEMU and tries the tools that were built against what a
network namespace cannot have. Without TRIAL, all of them:

  clock       a host whose clock stands in 1995, 2040 or 2100, or jumps by years
  far         40 ms of round trip at $RATE, without and with 1 % of loss, against raw TCP
  numa        two NUMA nodes: host-probe, dgl-env --bind, where processes run and what memory they get
  proc        /proc with hidepid=2
  namespaces  ordinary users may not make any: what host-lab says
  cgroup1, cgroup2
              processes that the kernel kills because the memory of a control group or of the machine runs out
  yama        kernel.yama.ptrace_scope 0 to 3: whose stacks can be read, and what is said of the others

With shell, a shell where the tools run, with the machine up: ssh 10.78.0.2 leads there.
Needs root, QEMU, debootstrap, sshd and jq; it says what is missing, with status 69.

Environment:
  KERNEL_DIR  where the machine is kept (now ${KERNEL_DIR:-${CARGO_TARGET_DIR:-target}/kernel}); what it is made of is fetched once
  RATE        of the far link (now $RATE); emulated processors carry no more than some 100mbit, on a quiet machine
  ACCEL       how QEMU runs it (now ${ACCEL:-tcg,thread=multi}); kvm is quicker where it works
  BUILT       the directory of the tools (now ${BUILT:-${CARGO_TARGET_DIR:-target}/release})
  MIRROR      Debian's archive; without it, what this machine's apt fetches Debian 12 from
EOF2
}

die() { # PROBLEM FIX [STATUS]
    printf 'kernel.sh: %s\n  fix: %s\n' "$1" "$2" >&2
    exit "${3:-69}"
}

need() { command -v "$1" >/dev/null || die "$1 is missing" "apt-get install $2, or its like"; }

check_here() {
    [ "$(id -u)" = 0 ] || die "only root can make a machine" "run it as root: sudo -E env \"PATH=\$PATH\" $0"
    [ "$(uname -m)" = x86_64 ] || die "the machine is an x86_64, and this is $(uname -m)" "run it on an x86_64"
    need qemu-system-x86_64 qemu-system-x86
    need debootstrap debootstrap
    need mke2fs e2fsprogs
    need sshd openssh-server
    need ssh openssh-client
    need ip iproute2
    need jq jq
    need python3 python3
    need setpriv util-linux
    [ -c /dev/net/tun ] || die "/dev/net/tun is missing: no machine can be connected" "modprobe tun, or give the container that device"
    [ -x "$BUILT/host-agent" ] || die "the tools are not built in $BUILT" "make build, or name their directory in BUILT"
}

# ---- the machine --------------------------------------------------------------------------------------------------

packages=openssh-server,iproute2,procps,python3,kmod,cpio,busybox-static,ethtool

# Debian, its kernel and what of the modules a virtual machine needs, in $dir/base; vmlinuz and initrd beside it.
make_base() {
    local half=$dir/half kernel
    echo "kernel.sh: fetching Debian 12 and its kernel, once" >&2
    make_debian "$half" "$packages" || exit
    reach_archive "$half"
    # shellcheck disable=SC2016 # variables of the shell there
    kernel=$(chroot "$half" bash -e -c '
        apt-get -q update >&2
        cd /srv
        name=$(apt-cache depends linux-image-amd64 | sed -n "s/ *Depends: \(linux-image-.*\)/\1/p" | head -n 1)
        apt-get -q download "$name" >&2
        dpkg-deb --fsys-tarfile "$name"_*.deb | tar -x -C / --no-same-owner --wildcards --exclude "*/drivers/gpu/*" \
            --exclude "*/sound/*" --exclude "*/drivers/media/*" --exclude "*/drivers/net/ethernet/*" --exclude "*/drivers/net/wireless/*" \
            ./boot/vmlinuz-\* ./lib/modules/\*
        rm "$name"_*.deb
        echo "${name#linux-image-}"' 2>"$dir/kernel.log") || { tail -n 20 "$dir/kernel.log" >&2; exit 1; }
    # who merged /lib into /usr keeps it so
    chroot "$half" depmod "$kernel"
    chroot "$half" useradd --create-home --shell /bin/bash --password '*' user # sshd lets nobody in whose account is locked
    printf '127.0.0.1 localhost\n10.78.0.1 launcher\n10.78.0.2 machine\n' >"$half/etc/hosts"
    rm -f "$half"/etc/ssh/ssh_host_* "$half"/var/cache/apt/*.bin
    mv "$half/boot/vmlinuz-$kernel" "$dir/vmlinuz"
    make_initrd "$half" "$kernel"
    mv "$half" "$dir/base"
}

# Finds the disk, and nothing else.
make_initrd() { # BASE KERNEL
    local modules
    modules=$(for module in virtio_pci virtio_blk crc32c_generic ext4; do
        chroot "$1" modprobe -S "$2" --show-depends "$module"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++')
    rm -rf "$1/srv/initrd"
    mkdir -p "$1"/srv/initrd/{proc,sys,dev,disk,modules}
    cp "$1/bin/busybox" "$1/srv/initrd/busybox"
    for module in $modules; do cp "$1$module" "$1/srv/initrd/modules/"; done
    {
        echo '#!/busybox sh'
        echo '/busybox mount -t devtmpfs dev /dev'
        for module in $modules; do echo "/busybox insmod /modules/${module##*/}"; done
        echo 'until [ -b /dev/vda ]; do /busybox sleep 0.1; done'
        echo '/busybox mount -t ext4 /dev/vda /disk'
        echo '/busybox mount --move /dev /disk/dev'
        echo 'exec /busybox switch_root /disk /usr/local/sbin/machine-init'
    } >"$1/srv/initrd/init"
    chmod 755 "$1/srv/initrd/init"
    chroot "$1" sh -c 'cd /srv/initrd && find . | cpio --quiet -o -H newc' >"$dir/initrd"
    rm -rf "$1/srv/initrd"
}

# A disk of today: its own key, who may log in, the init as it stands in this checkout.
make_image() {
    local base=$dir/base home size
    rm -rf "$dir/keys" "$base/etc/ssh/key" "$base/etc/ssh/key.pub"
    mkdir -m 700 "$dir/keys"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/keys/id_ed25519"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/keys/host"
    install -m 600 "$dir/keys/host" "$base/etc/ssh/key"
    install -m 755 "$root/tests/kernel/init" "$base/usr/local/sbin/machine-init"
    install -m 755 "$root/tools/host-lab/host-lab" "$base/usr/local/bin/host-lab"
    for home in root home/user; do
        install -d -m 700 "$base/$home/.ssh"
        install -m 600 "$dir/keys/id_ed25519.pub" "$base/$home/.ssh/authorized_keys"
    done
    chroot "$base" chown -R user: /home/user
    size=$(du -sm "$base" | cut -f1)
    rm -f "$dir/image"
    truncate -s "$((size * 5 / 4 + 300))M" "$dir/image"
    mke2fs -q -t ext4 -d "$base" "$dir/image"
}

# ---- where the trials run -----------------------------------------------------------------------------------------

# In namespaces of its own: a card to the machine, logins and directories that are nobody else's.
inside() { # MACHINE TRIAL...
    local home
    home=$(getent passwd root | cut -d: -f6)
    hostname launcher
    ip link set lo up
    ip tuntap add tap0 mode tap
    ip addr add 10.78.0.1/24 dev tap0
    ip link set tap0 up
    mount -t tmpfs -o mode=1777 shm /dev/shm
    [ -d "$home/.ssh" ] || mkdir -m 700 "$home/.ssh"
    mkdir -p "$work"/{srv,ssh,cache} "$home/.cache/dgl-tools"
    chmod 700 "$work"/{ssh,cache}
    mount --bind "$work/srv" /srv
    mount --bind "$work/cache" "$home/.cache/dgl-tools"
    mount --bind "$work/ssh" "$home/.ssh"
    cp "$dir/keys/id_ed25519" "$home/.ssh/"
    cp "$dir/keys/id_ed25519.pub" "$home/.ssh/authorized_keys"
    sed "s/^/10.78.0.1,10.78.0.2 /" "$dir/keys/host.pub" >"$home/.ssh/known_hosts"
    [ ! -e "$home/.bashrc" ] || mount --bind /dev/null "$home/.bashrc" # it may take seconds
    mkdir -p /run/sshd
    "$(command -v sshd)" -f /dev/null -o HostKey="$dir/keys/host" -o PidFile="$work/sshd.pid" -o UsePAM=no -o StrictModes=no \
        -o PasswordAuthentication=no -o ListenAddress=10.78.0.1 -E "$work/sshd.log"
    export PATH=$BUILT:$PATH DGL_TOOLS_CONNECT_TIMEOUT=60s
    cd "$work"
    boot "$1"
    shift
    # shellcheck source=tests/kernel/checks.sh
    . "$root/tests/kernel/checks.sh"
    for trial; do
        if [ "$trial" = shell ]; then
            bash -i || true
        else
            # shellcheck source=/dev/null
            . "$root/tests/kernel/$trial.sh"
            "try_$trial"
        fi
    done
}

boot() { # MACHINE
    local processors memory=() begun=$SECONDS
    case $1 in
        # 2 processors, because figures are to be had from what two of this machine's carry
        one) processors=(-smp 2 -m 2G) ;;
        two) processors=(-smp '4,sockets=2,cores=2' -m 2G) memory=(
            -object 'memory-backend-ram,id=m0,size=1G' -object 'memory-backend-ram,id=m1,size=1G'
            -numa 'node,nodeid=0,cpus=0-1,memdev=m0' -numa 'node,nodeid=1,cpus=2-3,memdev=m1') ;;
    esac
    TMPDIR=$work qemu-system-x86_64 -accel "$ACCEL" -cpu max "${processors[@]}" "${memory[@]}" -nodefaults -display none -no-reboot \
        -kernel "$dir/vmlinuz" -initrd "$dir/initrd" -append "console=ttyS0 quiet panic=-1 mitigations=off" \
        -drive "file=$dir/image,format=raw,if=none,id=disk,snapshot=on" -device virtio-blk-pci,drive=disk \
        -netdev tap,id=net,ifname=tap0,script=no,downscript=no \
        -device virtio-net-pci,netdev=net,romfile=,guest_tso4=off,guest_tso6=off,guest_ufo=off \
        -serial "file:$work/console" >"$work/qemu.log" 2>&1 &
    until ssh -o ConnectTimeout=2 10.78.0.2 true 2>"$work/ssh.log"; do
        if ! kill -0 $! 2>/dev/null || [ $((SECONDS - begun)) -gt 180 ]; then
            tail -n 20 "$work"/{qemu.log,console,ssh.log} >&2
            die "the machine did not come up" "see what stands above" 1
        fi
        sleep 0.5
    done
    echo "== a machine with $(ssh 10.78.0.2 'echo "$(nproc) processors, Linux $(uname -r)"'), up after $((SECONDS - begun)) s"
}

run_on() { # MACHINE TRIAL...
    rm -rf "$work"
    mkdir -p "$work"
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --net --uts --ipc --fork --kill-child --mount-proc "$me" inside "$@" || failed=1
}

main() {
    local one=() two=() trial failed=''
    for trial; do
        case " ${trials[*]} shell " in *" $trial "*) ;; *) usage >&2; exit 2 ;; esac
    done
    [ $# -gt 0 ] || set -- "${trials[@]}"
    for trial; do
        # of a machine's memory controller one version of control groups at a time has the use
        case $trial in clock | far | cgroup2 | shell) one+=("$trial") ;; *) two+=("$trial") ;; esac
    done
    # a shell is for the machine of the trials that are named with it
    [ ${#two[@]} = 0 ] || [ "${one[*]}" != shell ] || { two+=(shell); one=(); }
    cd "$root"
    BUILT=$(realpath -m "${BUILT:-${CARGO_TARGET_DIR:-target}/release}")
    ACCEL=${ACCEL:-tcg,thread=multi}
    dir=$(realpath -m "${KERNEL_DIR:-${CARGO_TARGET_DIR:-target}/kernel}")
    work=$dir/work
    export BUILT ACCEL RATE dir work
    check_here
    # shellcheck source=tests/debian.sh
    . tests/debian.sh
    mkdir -p "$dir"
    exec 9>"$dir/lock"
    flock -n 9 || die "another kernel.sh is at work in $dir" "wait for it, or set KERNEL_DIR"
    [ -d "$dir/base" ] || make_base
    make_image
    : >"$dir/checks"
    : >"$dir/figures"
    [ ${#one[@]} = 0 ] || run_on one "${one[@]}"
    [ ${#two[@]} = 0 ] || run_on two "${two[@]}"
    if [ -n "$failed" ] || grep -q '^FAILED' "$dir/checks"; then
        grep '^FAILED' "$dir/checks" || true
        echo "kernel.sh: $(grep -c '^FAILED' "$dir/checks") of $(grep -c . "$dir/checks") checks failed${failed:+, and a trial broke off}"
        exit 1
    fi
    echo "kernel.sh: all $(grep -c . "$dir/checks") checks did well"
}

# The exit stands in the same line, so that nothing is read of a file that was edited meanwhile.
case "${1:-}" in
    inside) inside "${@:2}"; exit ;;
    -h | --help) usage; exit ;;
    *) main "$@"; exit ;;
esac
