#!/bin/bash
# Prints the path of py-spy's own program, of the version whose library host-agent has in it: what dgl-stacks is compared with.
# All else goes to stderr. Exit status 69: there can be none here, and why.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n '/^name = "py-spy"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
[ -n "$version" ] || { echo "py-spy.sh: Cargo.lock names no py-spy" >&2; exit 1; }
bin=$(tests/pip.sh "py-spy-$version" py-spy --no-deps "py-spy==$version")
echo "$bin/py-spy"
