#!/bin/sh
# Makes what a release consists of, in target/dist: for each machine type a tarball, a Python wheel and a Debian package of the
# same programs, and SHA256SUMS of all. The programs are static (musl), so they run on every Linux of their machine type from kernel
# 3.6 on. No directory of the machine that builds and no date but that of the commit stands in them: with the same versions of Rust, tar,
# gzip, dpkg and Python, builds of a commit in different directories are equal byte for byte.
#   dist.sh [MACHINE...]    x86_64 and aarch64, unless machine types are given; every package has the agents of both
# CARGO_TARGET_DIR is obeyed. Exit status 69: something is missing that this says.
set -eu
[ $# -gt 0 ] || set -- x86_64 aarch64
cd "$(dirname "$0")/.."
umask 022
export LC_ALL=C TZ=UTC

missing() { # PROBLEM FIX
  printf 'dist.sh: %s\n  fix: %s\n' "$1" "$2" >&2
  exit 69
}
for command in cargo dpkg-deb jq make perl python3; do
  command -v "$command" >/dev/null || missing "there is no $command" "install it"
done
for machine in x86_64 aarch64; do
  [ -d "$(rustc --print target-libdir --target "$machine-unknown-linux-musl")" ] ||
    missing "this Rust has no library for $machine" "rustup target add $machine-unknown-linux-musl"
done

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
mkdir -p "${CARGO_TARGET_DIR:-target}/dist"
CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")
export VERSION CARGO_TARGET_DIR
dist=$CARGO_TARGET_DIR/dist
work=$CARGO_TARGET_DIR/dist-work

# zig compiles and links C for both machine types, with the same musl on every machine that builds
venv=$work/venv
[ -d "$venv" ] || python3 -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --require-hashes --only-binary :all: --requirement packaging/requirements.txt
PATH=$venv/bin:$PATH

build() { # MACHINE PROFILE PACKAGE
  cargo zigbuild --locked --target "$1-unknown-linux-musl" --profile "$2" --package "$3" --bin "$3"
}
# no directory of this machine stands in a program: Rust's messages name sources, OpenSSL the directory that it would be installed into
RUSTFLAGS="--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
# shellcheck disable=SC2089 # the quotes are for the shell of OpenSSL's make
CPPFLAGS='-UMODULESDIR -DMODULESDIR=\"/usr/lib/ossl-modules\" -UENGINESDIR -DENGINESDIR=\"/usr/lib/engines-3\"'
# shellcheck disable=SC2090
export RUSTFLAGS CPPFLAGS OPENSSL_NO_VENDOR=0
for machine in x86_64 aarch64; do build "$machine" agent host-agent; done

packaging/licences.sh "$venv"/lib/python3*/site-packages/ziglang >"$work/THIRD-PARTY"
rm -rf "$dist"
mkdir "$dist"
for machine; do
  build "$machine" packages dgl-tools
  built=$work/built-$machine
  name=dgl-tools-$VERSION-$machine-linux
  tree=$work/$name
  rm -rf "$built" "$tree"
  mkdir -p "$built" "$tree"
  cp "$CARGO_TARGET_DIR/$machine-unknown-linux-musl/packages/dgl-tools" "$built/"
  for other in x86_64 aarch64; do
    agent=host-agent-$other
    [ "$other" != "$machine" ] || agent=host-agent
    cp "$CARGO_TARGET_DIR/$other-unknown-linux-musl/agent/host-agent" "$built/$agent"
  done
  make --no-print-directory --silent install BUILT="$built" DESTDIR="$tree" PREFIX=
  install -m 644 "$work/THIRD-PARTY" "$tree/share/doc/dgl-tools/"
  find "$tree" -depth -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  tar --sort=name --owner=0 --group=0 --numeric-owner --format=gnu -C "$work" -c "$name" | gzip -9n >"$dist/$name.tar.gz"
  packaging/deb.sh "$machine" "$tree" "$dist"
  packaging/wheel.sh "$machine" "$tree" "$dist"
done
(cd "$dist" && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
