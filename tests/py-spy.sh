#!/bin/bash
# Prints the path of py-spy's own program, of the version whose library host-agent has in it: what dgl-stacks is compared with.
# A venv in the user's cache, made on the first call; in continuous integration (CI is set) pip tries it several times, elsewhere once.
# All else goes to stderr. Exit status 69: there can be none here, and why.
set -euo pipefail
exec 3>&1 1>&2
cd "$(dirname "$0")/.."

die() { echo "py-spy.sh: $1" >&2; exit 69; }
version=$(sed -n '/^name = "py-spy"$/{n;s/^version = "\(.*\)"$/\1/p}' Cargo.lock)
[ -n "$version" ] || { echo "py-spy.sh: Cargo.lock names no py-spy" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dgl-tools
venv=$cache/py-spy-$version

{ mkdir -p "$cache" && exec 9>"$cache/lock-py-spy"; } || die "there can be no $cache"
flock 9 # two calls at once: the second waits, and finds it made
if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || die "python3 cannot make a venv"
    pauses=(0) options=(--retries 0 --timeout 15)
    [ -z "${CI:-}" ] || pauses=(0 5 20) options=(--retries 5)
    for pause in "${pauses[@]}"; do
        sleep "$pause"
        ! "$venv/bin/python" -m pip install --quiet "${options[@]}" --no-deps "py-spy==$version" 9>&- || break
    done
    "$venv/bin/py-spy" --version || die "pip cannot install py-spy $version"
    : >"$venv/complete"
fi
echo "$venv/bin/py-spy" >&3
