#!/bin/sh
# Makes a Python wheel of a tree that `make install` filled; pip unpacks it into bin/, share/ and so on of its environment. dist.sh
# calls it, with VERSION and SOURCE_DATE_EPOCH, and with the command `wheel` in PATH.
#   wheel.sh MACHINE TREE FOLDER
set -eu
name=dgl_tools-$VERSION
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$work/$name
mkdir -p "$files/$name.data" "$files/$name.dist-info/licenses"
cp -a "$2" "$files/$name.data/data"
mv "$files/$name.data/data/bin" "$files/$name.data/scripts"
# A wheel has no symbolic links; pipx and uv make some to what it brings.
for tool in "$files/$name.data/scripts"/*; do
  if [ -h "$tool" ]; then
    rm "$tool"
    cat >"$tool" <<END
#!/bin/sh
own=\$(readlink -f "\$0")
exec "\${own%/*}/../libexec/dgl-tools/dgl-tools" ${tool##*/} "\$@"
END
    chmod 755 "$tool"
  fi
done
# static programs, which ask for no libc: neither that of manylinux nor that of musllinux is too old
cat >"$files/$name.dist-info/WHEEL" <<END
Wheel-Version: 1.0
Generator: dgl-tools
Root-Is-Purelib: false
Tag: py3-none-manylinux_2_17_$1
Tag: py3-none-manylinux2014_$1
Tag: py3-none-musllinux_1_1_$1
END
doc=$files/$name.data/data/share/doc
mv "$doc/dgl-tools/LICENSE" "$doc/dgl-tools/THIRD-PARTY" "$files/$name.dist-info/licenses/"
rm -r "$doc"
cat - README.md >"$files/$name.dist-info/METADATA" <<END
Metadata-Version: 2.4
Name: dgl-tools
Version: $VERSION
Summary: Copies each host its share of the data, runs distributed training on all hosts over SSH and supervises every process
License-Expression: Apache-2.0
License-File: LICENSE
License-File: THIRD-PARTY
Requires-Python: >=3.6
Description-Content-Type: text/markdown

END
wheel pack --dest-dir "$3" "$files" >/dev/null
