#!/bin/sh
# Prints the licence of every crate that is linked in, then the texts that come with them: each once, because most are the same.
#   licences.sh ZIG    ZIG is the directory of the zig that linked them, whose C library is linked in too
set -eu
texts=$(mktemp -d)
trap 'rm -rf "$texts"' EXIT

keep() { # FILE...: keeps each text under a number, and prints the numbers
  for file; do
    number=$(sha256sum <"$file" | cut -c1-12)
    [ -e "$texts/$number" ] || cp "$file" "$texts/$number"
    printf ' %s' "$number"
  done
}

printf 'What is linked into the programs of dgl-tools, with its licence and the numbers of the texts that come with it.\n\n'
printf 'Rust standard library %s: MIT OR Apache-2.0\n' "$(rustc --version | cut -d' ' -f2)"
printf 'musl: MIT%s\n' "$(keep "$1/lib/libc/musl/COPYRIGHT")"
printf 'LLVM libunwind: Apache-2.0 WITH LLVM-exception%s\n' "$(keep "$1/lib/libunwind/LICENSE.TXT")"
cargo metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-musl --filter-platform aarch64-unknown-linux-musl |
  jq -r '.packages[] | select(.source) | [.manifest_path, .name, .version, .license] | @tsv' | sort -k2 |
  while IFS='	' read -r manifest name version licence; do
    printf '%s %s: %s' "$name" "$version" "$licence"
    find "${manifest%/*}" -maxdepth 3 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) | sort |
      while read -r file; do keep "$file"; done
    echo
  done
for text in "$texts"/*; do
  printf '\n==== %s\n\n' "${text##*/}"
  cat "$text"
done
