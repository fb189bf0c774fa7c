#!/bin/sh
# Makes a Python wheel of all that `make install` puts in place; pip unpacks it into bin/ and share/ of its environment. It runs on
# every Linux from glibc 2.17 (2012) on: zig links against that one wherever it is built, and OpenSSL is built in. Takes minutes.
set -eu
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
built=$(realpath "${CARGO_TARGET_DIR:-target}")
work=$built/wheel
name=dgl_tools-$version

[ -d "$work/venv" ] || python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet cargo-zigbuild==0.24.0 ziglang==0.17.1 wheel==0.48.0
PATH=$work/venv/bin:$PATH env -u OPENSSL_NO_VENDOR cargo zigbuild --release --locked --target "$target.2.17" --workspace --exclude host-agent
# static, so that no glibc of a host is too old
packaging/agent.sh
install -m 755 "$built/release/host-agent" "$built/$target/release/"

files=$work/$name
rm -rf "$files" "$work"/*.whl
make --no-print-directory install BUILT="$built/$target/release" DESTDIR="$files/$name.data/data" PREFIX=
mv "$files/$name.data/data/bin" "$files/$name.data/scripts"
mkdir "$files/$name.dist-info"
cat >"$files/$name.dist-info/WHEEL" <<END
Wheel-Version: 1.0
Generator: dgl-tools
Root-Is-Purelib: false
Tag: py3-none-manylinux_2_17_${target%%-*}
Tag: py3-none-manylinux2014_${target%%-*}
END
cat - README.md >"$files/$name.dist-info/METADATA" <<END
Metadata-Version: 2.4
Name: dgl-tools
Version: $version
Summary: Copies a partitioned DGL graph to a cluster and runs distributed training there
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD-PARTY
Requires-Python: >=3.6
Description-Content-Type: text/markdown

END
mkdir "$files/$name.dist-info/licenses"
cp LICENSE "$files/$name.dist-info/licenses/"
# what is linked in wants its licence to go with it
cargo metadata --format-version 1 --locked --filter-platform "$target" | jq -r '.packages[] | select(.source) | .manifest_path' |
  while read -r manifest; do
    find "${manifest%/*}" -maxdepth 3 -type f \( -iname 'licen[sc]e*' -o -iname 'copying*' -o -iname 'notice*' \) \
      -exec sh -c 'echo "==== ${1#*/registry/src/*/}" && cat "$1"' sh {} \;
  done >"$files/$name.dist-info/licenses/THIRD-PARTY"
"$work/venv/bin/wheel" pack --dest-dir "$work" "$files"
