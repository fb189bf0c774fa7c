#!/bin/bash
# Prints the directory with the programs of packages from PyPI, for tests that compare with them or need them beside.
#   pip.sh NAME PROGRAM PACKAGE...
# A venv in the user's cache, made on the first call; in continuous integration (CI is set) pip tries it several times, elsewhere once.
# All else goes to stderr. Exit status 69: there can be none here, and why.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/venv.sh"

name=$1 program=$2
shift 2
venv=$cache/$name
lock "$name"
if [ ! -e "$venv/complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv" || die "python3 cannot make a venv"
    pauses=(0) options=(--retries 0 --timeout 15)
    [ -z "${CI:-}" ] || pauses=(0 5 20) options=(--retries 5)
    for pause in "${pauses[@]}"; do
        sleep "$pause"
        ! "$venv/bin/python" -m pip install --quiet "${options[@]}" "$@" 9>&- || break
    done
    "$venv/bin/$program" --version >/dev/null || die "pip cannot install $*"
    : >"$venv/complete"
fi
echo "$venv/bin" >&3
