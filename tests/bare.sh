#!/bin/bash
# README's two commands, `make demo` and `make test`, on a machine that has nothing yet: see usage() for what it does.
#
# The machine is a directory that debootstrap made, entered with pivot_root(2): in a chroot the kernel lets nobody make a user
# namespace, which is what hosts without root are made of. It has its own processes, /dev and /sys, and this machine's network,
# for it has packages to fetch. All mounts lie in a namespace that ends with it.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
me=$(readlink -f "$0")

usage() {
    cat <<EOF2
bare.sh [root] [user] [demo] [-- TESTS...]

Makes a Debian 12 with git, Python 3 and this machine's Rust toolchain alone, clones the last commit into it, and runs
README's commands there: on one machine root, without cargo-nextest, which make test then installs; on another a user, with
this machine's cargo-nextest. Without root or user both are tried. With demo, make demo alone. TESTS are for make test.
Needs root, debootstrap and, for user, cargo-nextest.

Environment:
  BARE_DIR   where machines and packages are kept (now ${BARE_DIR:-target/bare}); the packages are fetched once
  MIRROR     Debian's archive; without it, what this machine's apt fetches Debian 12 from
EOF2
}

die() { echo "bare.sh: $1" >&2; exit "${2:-69}"; }

# What a machine needs to know to reach the registries of packages, as this one does.
reach=(http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE PIP_CERT PIP_INDEX_URL PIP_DEFAULT_TIMEOUT)

# ---- on this machine ----------------------------------------------------------------------------------------------

make_base() { # FOLDER
    echo "bare.sh: making $1" >&2
    make_debian "$1.half" git,python3 || exit
    printf '127.0.0.1 localhost\n127.0.1.1 bare\n' >"$1.half/etc/hosts"
    echo bare >"$1.half/etc/hostname"
    mv "$1.half" "$1"
}

# A machine of its own: what is installed there is nobody else's.
make_machine() { # FOLDER WHO
    local cargo=${CARGO_HOME:-$HOME/.cargo}
    rm -rf "$1"
    cp -a "$base" "$1"
    reach_archive "$1"
    install -d "$1/opt/rust" "$1/srv/cargo" "$1/mnt"
    # crates are fetched once: by the build on this machine
    [ ! -d "$cargo/registry" ] || cp -a "$cargo/registry" "$1/srv/cargo/"
    [ ! -e "$cargo/config.toml" ] || cp "$cargo/config.toml" "$1/srv/cargo/"
    git clone --quiet --bare --no-local . "$1/srv/dgl-tools.git"
    install -m 755 "$me" "$1/srv/bare.sh"
    [ "$2" = root ] || install -m 755 "$(command -v cargo-nextest)" "$1/usr/local/bin/"
}

# pid 1 of the machine, still in this one's file system.
enter() { # FOLDER ARG...
    local machine=$1 device
    mount --bind "$machine" "$machine"
    mount -t proc proc "$machine/proc"
    mount -t sysfs sysfs "$machine/sys"
    mount -t tmpfs -o mode=755 dev "$machine/dev"
    for device in null zero full random urandom tty; do
        : >"$machine/dev/$device"
        mount --bind "/dev/$device" "$machine/dev/$device"
    done
    mkdir "$machine/dev/pts" "$machine/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts "$machine/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$machine/dev/shm"
    ln -s pts/ptmx "$machine/dev/ptmx"
    ln -s /proc/self/fd "$machine/dev/fd"
    for device in stdin:0 stdout:1 stderr:2; do ln -s "/proc/self/fd/${device#*:}" "$machine/dev/${device%:*}"; done
    mount -o bind,ro "$BARE_TOOLCHAIN" "$machine/opt/rust"
    mount --bind "$BARE_PACKAGES" "$machine/var/cache/apt/archives"
    hostname bare
    cd "$machine"
    pivot_root . mnt
    exec chroot . /bin/bash -c 'umount -l /mnt && cd && exec /srv/bare.sh inside "$@"' bash "${@:2}"
}

# ---- in the bare machine ------------------------------------------------------------------------------------------

as() { # WHO CMD... : in that user's directory, with nothing in the environment but what a login has
    local who=$1 home path=/opt/rust/bin:/usr/local/bin:/usr/bin:/bin name reached=()
    home=$(getent passwd "$who" | cut -d: -f6)
    [ "$who" != root ] || path=$path:/usr/local/sbin:/usr/sbin:/sbin
    for name in "${reach[@]}"; do [ -z "${!name:-}" ] || reached+=("$name=${!name}"); done
    setpriv --reuid="$who" --regid="$who" --init-groups env -i -C "$home" HOME="$home" USER="$who" PATH="$path" \
        SHELL=/bin/bash LANG=C.UTF-8 TERM="${TERM:-dumb}" "${reached[@]}" "${@:2}"
}

step() { # WHAT WHO CMD...
    local begun=$SECONDS status=0
    echo "== $1"
    as "${@:2}" || status=$?
    echo "== $1: status $status after $((SECONDS - begun)) s"
    return "$status"
}

# A user cannot install packages: need.sh names the command that does, and root runs it.
install_what_is_named() { # FOR
    local named
    named=$(as user bash -c "cd dgl-tools && tests/need.sh $1" 2>&1) && return
    [[ $named == *"sudo apt-get install"* ]] || die "need.sh $1 names no command: $named" 1
    echo "== as root: ${named##*sudo }"
    # shellcheck disable=SC2086 # a word a package
    as root env DEBIAN_FRONTEND=noninteractive ${named##*sudo } >/srv/apt.log 2>&1 || { tail -n 20 /srv/apt.log; die "apt-get failed" 1; }
}

inside() { # WHO TEST...
    local who=$1 home
    hash -r
    apt-get update >/dev/null
    [ "$who" = root ] || useradd --create-home --shell /bin/bash "$who"
    home=$(getent passwd "$who" | cut -d: -f6)
    chmod 700 "$home" # nobody else may look in: tests that become another user must not need to
    mv /srv/cargo "$home/.cargo"
    chown -R "$who:" "$home" /srv/dgl-tools.git
    as "$who" git clone --quiet /srv/dgl-tools.git
    cd "$home"
    if [ "$who" = root ]; then
        # the minimum has no make yet
        step "tests/need.sh" root dgl-tools/tests/need.sh
    else
        install_what_is_named ''
    fi
    step "make demo" "$who" make -C dgl-tools demo
    [ -z "$DEMO_ALONE" ] || return 0
    [ "$who" = root ] || install_what_is_named test
    step "make test TESTS=${*:2}" "$who" make -C dgl-tools test TESTS="${*:2}"
}

# ---- which machines -----------------------------------------------------------------------------------------------

main() {
    local users=() failed=() who folder
    export DEMO_ALONE=
    while [ $# -gt 0 ]; do
        case $1 in
            root | user) users+=("$1") ;;
            demo) DEMO_ALONE=yes ;;
            --) shift; break ;;
            *) usage >&2; exit 2 ;;
        esac
        shift
    done
    [ ${#users[@]} -gt 0 ] || users=(root user)

    cd "$(dirname "$me")/.."
    # shellcheck source=tests/debian.sh
    . tests/debian.sh
    [ "$(id -u)" = 0 ] || die "only root can make a machine: run it as root"
    command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
    [[ "${users[*]}" != *user* ]] || command -v cargo-nextest >/dev/null ||
        die "cargo-nextest is missing: cargo install --locked cargo-nextest"
    [ -z "$(git status --porcelain)" ] || echo "bare.sh: what is not committed is not tried" >&2

    dir=$(realpath -m "${BARE_DIR:-${CARGO_TARGET_DIR:-target}/bare}")
    base=$dir/base
    BARE_TOOLCHAIN=$(rustc --print sysroot)
    BARE_PACKAGES=$dir/packages
    export BARE_TOOLCHAIN BARE_PACKAGES
    mkdir -p "$BARE_PACKAGES/partial"
    [ -d "$base" ] || make_base "$base"
    for who in "${users[@]}"; do
        folder=$dir/$who
        make_machine "$folder" "$who"
        echo "==== a bare machine, $who"
        if unshare --mount --propagation private --pid --uts --ipc --fork --kill-child \
            "$me" enter "$folder" "$who" "$@"; then
            rm -rf "$folder"
        else
            failed+=("$who: it is kept in $folder")
        fi
    done
    [ ${#failed[@]} = 0 ] || { printf 'bare.sh: failed: %s\n' "${failed[@]}" >&2; exit 1; }
    echo "bare.sh: all commands did well on ${#users[@]} machines"
}

# The exit stands in the same line, so that nothing is read of a file that was edited meanwhile.
case "${1:-}" in
    enter) enter "${@:2}" ;;
    inside) inside "${@:2}"; exit ;;
    -h | --help) usage; exit ;;
    *) main "$@"; exit ;;
esac
