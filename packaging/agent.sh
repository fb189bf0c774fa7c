#!/bin/sh
# Builds host-agent as one static file, which runs on every Linux of its machine type from kernel 3.6 on, whatever lies beside it.
#   agent.sh            for this machine's type: target/release/host-agent, beside the tools
#   agent.sh --dev      the same without optimization, for tests: target/debug/static-host-agent
#   agent.sh TARGET     for another, such as aarch64-unknown-linux-gnu: target/release/host-agent-aarch64
# CARGO_TARGET_DIR is obeyed. Exit status 69: something is missing that this says.
set -eu
cd "$(dirname "$0")/.."

profile=release
[ "${1:-}" != --dev ] || { profile=dev; shift; }
own=$(rustc -vV | sed -n 's/^host: //p')
target=${1:-$own}
# as uname -m names it
case ${target%%-*} in
  armv7) machine=armv7l ;;
  powerpc64le) machine=ppc64le ;;
  riscv64gc) machine=riscv64 ;;
  *) machine=${target%%-*} ;;
esac
built=${CARGO_TARGET_DIR:-target}

missing() { # PROBLEM FIX
  printf 'agent.sh: %s: %s\n  fix: %s\n' "$target" "$1" "$2" >&2
  exit 69
}

# The linker as cargo will call it, by what the user says or what distributions name it.
if [ "$target" = "$own" ]; then
  linker=cc
else
  [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ] ||
    missing "this Rust has no library for it" "rustup target add $target"
  variable=CARGO_TARGET_$(printf %s "$target" | tr 'a-z-' 'A-Z_')_LINKER
  gcc=$(printf %s "${target%%-*}-linux-${target##*-}" | sed 's/^armv7-/arm-/; s/^riscv64gc-/riscv64-/')
  linker=$(printenv "$variable" || echo "$gcc-gcc")
  command -v "$linker" >/dev/null ||
    missing "there is no linker $linker" "install it (Debian: gcc-$gcc), or name one in $variable"
  export "$variable=$linker"
  # for what is not Rust in crates
  export "CC_$(printf %s "$target" | tr - _)=$linker"
fi
echo 'int main(void) { return 0; }' | "$linker" -static -x c -o /dev/null - 2>/dev/null ||
  missing "$linker cannot link a static program" "install a static libc (Debian and Ubuntu: libc6-dev, Fedora: glibc-static, Arch: glibc)"

# What is said behind -- is for the last crate alone, so that all others are built once.
set -- --locked --profile "$profile" -p host-agent --bin host-agent
[ "$target" = "$own" ] || set -- "$@" --target "$target"
set -- "$@" -- -C target-feature=+crt-static
# 300 KB less of relocations, where the linker can write them packed and the C library reads them (glibc 2.36, musl 1.2.4).
probe=$(mktemp)
packed=-Wl,-z,pack-relative-relocs
if [ "$target" = "$own" ] && echo 'int main(void) { return 0; }' |
  "$linker" -static-pie "$packed" -x c -o "$probe" - 2>/dev/null && "$probe" 2>/dev/null; then
  set -- "$@" -C "link-arg=$packed"
fi
rm -f "$probe"
cargo rustc "$@"
# the next `cargo build` puts the one that it links in its place
[ "$profile" = release ] || cp "$built/debug/host-agent" "$built/debug/static-host-agent"
[ "$target" = "$own" ] || {
  mkdir -p "$built/release"
  # a new file: hosts of this machine may be running the old one
  install -m 755 "$built/$target/release/host-agent" "$built/release/host-agent-$machine"
}
