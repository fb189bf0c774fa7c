#!/bin/sh
# Makes a Debian package of a tree that `make install` filled; dist.sh calls it, with VERSION and SOURCE_DATE_EPOCH.
#   deb.sh MACHINE TREE FOLDER
set -eu
case $1 in
  x86_64) architecture=amd64 ;;
  aarch64) architecture=arm64 ;;
  *) architecture=$1 ;;
esac
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
chmod 755 "$files"
mkdir "$files/DEBIAN"
cp -a "$2" "$files/usr"
(cd "$files" && find usr -type f | sort | xargs -d '\n' md5sum) >"$files/DEBIAN/md5sums"
cat >"$files/DEBIAN/control" <<END
Package: dgl-tools
Version: $VERSION
Architecture: $architecture
Maintainer: The maintainers of dgl-tools <maintainers@dgl-tools.invalid>
Installed-Size: $(du -sk --apparent-size "$files/usr" | cut -f1)
Recommends: openssh-client
Suggests: jq, make
Section: science
Priority: optional
Description: runs distributed training on many hosts at once
 Copies each host its share of the data, runs a training script on all hosts over SSH and supervises
 every process: if one fails, the job stops everywhere. For torch, DGL, GraphStorm and other
 libraries. Nothing has to be installed on the hosts.
END
dpkg-deb --root-owner-group --build -Zxz -z9 "$files" "$3/dgl-tools_${VERSION}_$architecture.deb" >/dev/null
