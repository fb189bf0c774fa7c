#!/bin/sh
# Sees to it that the system has the packages that building, testing and rehearsing need. As root where there is apt it lists what is
# missing, and for what, and installs it; otherwise it names the one command that does. Exit status 69: something is missing still.
#   need.sh build  for a build, and for make test-fast
#   need.sh hosts  for simulated hosts too, as make demo starts them
#   need.sh        for DGL too
#   need.sh test   for all tests too
#   need.sh check  for a build and make check
set -eu
PATH=$PATH:/usr/sbin:/sbin
goal=${1:-dgl}
missing='' purposes='' purpose='' earlier=''

has() { command -v "$1" >/dev/null 2>&1; }
need() { # COMMAND PACKAGE
  has "$1" || missing="$missing $2"
}
need_package() { # PACKAGE, one that has no command
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ] || missing="$missing $1"
}
# What the needs below it are for; the last call has no argument.
to() { # PURPOSE
  [ "$missing" = "$earlier" ] || purposes="$purposes
  to $purpose:${missing#"$earlier"}"
  earlier=$missing purpose=${1:-}
}
may_install() { [ "$(id -u)" = 0 ] && has apt-get; }
# shellcheck disable=SC1091 # the system's file
is_debian_12() { (. /etc/os-release && [ "$ID-${VERSION_ID:-}" = debian-12 ]) 2>/dev/null; }
links() { echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null; }

if ! has cargo; then
  echo "need.sh: there is no cargo in PATH: install Rust 1.88 or later, with rustup" >&2
  exit 69
fi
case $(cargo --version) in
  'cargo 1.'[0-9].* | 'cargo 1.'[1-7][0-9].* | 'cargo 1.8'[0-7].*)
    echo "need.sh: $(cargo --version) is too old: install Rust 1.88 or later, with rustup" >&2
    exit 69 ;;
esac

to build
need cc gcc
links || missing="$missing libc6-dev"
need make make
# With these the system's OpenSSL is used; without them it is built from source, which takes minutes and the whole of Perl.
if ! pkg-config --exists openssl 2>/dev/null; then
  if may_install || ! perl -MFindBin -MFile::Compare -e 1 2>/dev/null; then
    missing="$missing pkg-config libssl-dev"
  fi
fi

if [ "$goal" != build ] && [ "$goal" != check ]; then
  to "simulate hosts"
  need ssh openssh-client
  need sshd openssh-server
  need ip iproute2
  need pgrep procps
  need unshare util-linux
  need python3 python3
fi

# What tests/dgl/python.sh makes its venv with. Debian 12 has a torch (1.13, CPU only) and all that DGL needs: 100 MB, where
# pip's torch brings CUDA.
if [ "$goal" = dgl ] || [ "$goal" = test ]; then
  to "train with DGL"
  if [ -n "${PYTHON:-}" ]; then
    :
  elif is_debian_12; then
    for package in python3-venv python3-torch python3-scipy python3-networkx python3-psutil python3-requests python3-tqdm python3-numpy; do
      need_package "$package"
    done
  elif ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    missing="$missing python3-venv"
  fi
  to "read records in tests and scripts"
  need jq jq
fi

if [ "$goal" = check ]; then
  to "check documents and scripts"
  need python3 python3
  need mandoc mandoc
  need shellcheck shellcheck
  if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    echo "need.sh: make check needs rustfmt and clippy: rustup component add rustfmt clippy" >&2
    exit 69
  fi
fi

if [ "$goal" = test ]; then
  to "test documents and pages"
  need mandoc mandoc
  need cmark-gfm cmark-gfm
  need chromium chromium
  to "test shells and terminals"
  need busybox busybox
  need zsh zsh
  need fish fish
  need mksh mksh
  need tcsh tcsh
  need tmux tmux
  to "test copies and networks"
  need strace strace
  need zstd zstd
  need curl curl
  need iperf3 iperf3
  need nft nftables
  need rclone rclone
  to "test the program for Prometheus"
  need promtool prometheus
  # without them a test says that it is skipped
  if may_install; then
    to "test full disks"
    need mkfs.ext4 e2fsprogs
    to "test jobs under Slurm"
    need slurmctld slurmctld
    need slurmd slurmd
    need srun slurm-client
    need munged munge
    to "test jobs that are left running"
    need systemd-run systemd
    to "test logins with Kerberos"
    need krb5kdc krb5-kdc
    need kadmin.local krb5-admin-server
    need kinit krb5-user
  fi
fi
to

[ -n "$missing" ] || exit 0
if ! has apt-get; then
  echo "need.sh: packages are missing, by their Debian names:$purposes" >&2
  exit 69
fi
if ! may_install; then
  echo "need.sh: packages are missing:$purposes
  fix: sudo apt-get update && sudo apt-get install -y --no-install-recommends$missing" >&2
  exit 69
fi

echo "need.sh: apt-get installs packages, whose services stay disabled:$purposes" >&2
log=$(mktemp)
policy=''
trap 'rm -f "$log" $policy' EXIT
# Programs are wanted, not services: neither now nor at the next start of the machine.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  policy=/usr/sbin/policy-rc.d
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
for try in 1 2 3; do
  # shellcheck disable=SC2086 # a word a package
  if {
    apt-get -o DPkg::Lock::Timeout=600 update &&
      DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y --no-install-recommends $missing
  } >"$log" 2>&1; then
    for service in munge slurmd slurmctld prometheus krb5-kdc krb5-admin-server; do
      case "$missing " in *" $service "*) ! has systemctl || systemctl disable "$service" >/dev/null 2>&1 || true ;; esac
    done
    exit 0
  fi
  tail -n 20 "$log" >&2
  echo "need.sh: apt-get failed, try $try of 3" >&2
  [ "$try" = 3 ] || sleep $((try * 5))
done
exit 69
