# shellcheck shell=bash
# How scripts begin that make something in the user's cache on their first call and print its path: sourced. What is to be printed goes to
# 3, all else to stderr. Exit status 69: this machine lacks something, and the message says what.
set -euo pipefail
exec 3>&1 1>&2

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dgl-tools
die() { echo "$(basename "$(dirname "$0")")/${0##*/}: $1" >&2; exit 69; }

# The first Python of a version that runs: in PATH (a pyenv shim may not run), or one that pyenv keeps.
interpreter() { # VERSION
    local python
    for python in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*/bin/python; do
        "$python" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null && command -v "$python" && return
    done
    die "there is no Python $1 with venv"
}

# Two calls at once: the second waits, and finds it made.
lock() { # NAME
    { mkdir -p "$cache" && exec 9>"$cache/lock-$1"; } || die "there can be no $cache"
    flock 9
}
