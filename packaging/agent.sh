#!/bin/sh
# Builds host-agent as one static file, which runs on every Linux of its machine type from kernel 3.2 on, whatever lies beside it.
#   agent.sh            for this machine's type: target/release/host-agent, beside the tools
#   agent.sh TARGET     for another, such as aarch64-unknown-linux-gnu: target/release/host-agent-aarch64
# CARGO_TARGET_DIR is obeyed. Exit status 69: something is missing that this says.
set -eu
cd "$(dirname "$0")/.."

own=$(rustc -vV | sed -n 's/^host: //p')
target=${1:-$own}
machine=${target%%-*}
built=${CARGO_TARGET_DIR:-target}

missing() { # PROBLEM CURE
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
  linker=$(printenv "$variable" || echo "$machine-linux-${target##*-}-gcc")
  command -v "$linker" >/dev/null ||
    missing "there is no linker $linker" "install it (Debian: gcc-$machine-linux-gnu libc6-dev-*-cross, Fedora: gcc-$machine-linux-gnu), or name one in $variable"
  export "$variable=$linker"
  # for what is not Rust in crates
  export "CC_$(printf %s "$target" | tr - _)=$linker"
fi
echo 'int main(void) { return 0; }' | "$linker" -static -x c -o /dev/null - 2>/dev/null ||
  missing "$linker cannot link a static program" "install a static libc (Debian and Ubuntu: libc6-dev, Fedora: glibc-static, Arch: glibc)"

# What is said behind -- is for the last crate alone, so that all others are those of a build of the tools, and stay. Cargo keeps the
# dynamic one of a plain `cargo build` beside it, under another hash; the name in target/release is that of the last one made.
set -- --locked --release -p host-agent --bin host-agent
[ "$target" = "$own" ] || set -- "$@" --target "$target"
cargo rustc "$@" -- -C target-feature=+crt-static -C strip=symbols
if [ "$target" != "$own" ]; then
  mkdir -p "$built/release"
  install -m 755 "$built/$target/release/host-agent" "$built/release/host-agent-$machine"
fi
