#!/bin/bash
# Prints the path of a Python that can import DGL 1.0.4 and torch, and sees to it that there is one.
#   PYTHON=FILE in the environment   that one, if it can
#   otherwise                        a venv in the user's cache, made on the first call: minutes; later calls: no time
# With --at-hand it prints nothing, and its status is 0 if this needs no torch of pip, which is gigabytes.
# All else goes to stderr. Exit status 69: this machine lacks something, and the message says what.
set -euo pipefail
exec 3>&1 1>&2 # the one line of the answer goes to 3, so that no tool's chatter can get into it

export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json
dgl=dgl==1.0.4

die() { echo "python.sh: $1" >&2; exit 69; } # also from within $(...)
answer() { echo "$1" >&3; exit 0; }
imports() { "$1" -c 'import dgl, torch'; }

if [ -n "${PYTHON:-}" ]; then
    python=$(command -v "$PYTHON") || die "PYTHON=$PYTHON: no such program"
    imports "$python" || die "PYTHON=$PYTHON cannot import dgl and torch"
    [ "${1:-}" != --at-hand ] || exit 0
    answer "$python"
fi

# ---- the recipe: what the venv is made of -------------------------------------------------------------------------

# shellcheck disable=SC1091 # the system's file
is_debian_12() { (. /etc/os-release && [ "$ID-${VERSION_ID:-}" = debian-12 ]) 2>/dev/null; }

# root gets Debian's Python and torch from need.sh
[ "${1:-}" != --at-hand ] || ! is_debian_12 || [ "$(id -u)" != 0 ] || exit 0

# DGL 1.0.4 has wheels for these; the first that runs (a pyenv shim may not).
pip_python() {
    local name
    for name in python3.10 python3.11 python3.9 python3.8 python3.7 python3; do
        "$name" -c 'import sys, venv, ensurepip; sys.exit(not (3, 7) <= sys.version_info < (3, 12))' 2>/dev/null && command -v "$name" && return
    done
    die "DGL 1.0.4 needs a Python 3.7 to 3.11 with venv, and there is none in PATH: install one, or set PYTHON"
}

if is_debian_12 && [ -x /usr/bin/python3 ]; then
    # torch and all that DGL needs are Debian's: need.sh has the list.
    base=/usr/bin/python3
    venv_options=(--system-site-packages)
    # --no-deps: they are Debian's, and pip would bring newer ones that do not fit its torch. packaging is imported by DGL
    # but not among the dependencies it names.
    pip_options=(--no-deps "$dgl" packaging)
else
    base=$(pip_python)
    venv_options=()
    # The last torch that DGL 1.0.4 and Python 3.7 both know; numpy 2 is too new for it. It comes with CUDA: 3.5 GB. Who can
    # reach pytorch's own index of CPU builds may name it in PIP_EXTRA_INDEX_URL.
    pip_options=(torch==1.13.1 'numpy<2' scipy networkx psutil requests tqdm packaging "$dgl")
fi

# Another recipe or another interpreter is another venv.
recipe="$base $("$base" --version) ${venv_options[*]} ${pip_options[*]}"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/dgl-tools
venv=$cache/venv-${dgl/==/-}-$(cksum <<<"$recipe" | cut -d' ' -f1)
python=$venv/bin/python3

is_made() { [ -e "$venv/complete" ] && "$python" -c ''; } # not an import: torch takes seconds

if [ "${1:-}" = --at-hand ]; then
    is_made || { [ "$base" = /usr/bin/python3 ] && is_debian_12 && "$base" -c 'import venv, ensurepip, torch' 2>/dev/null; }
    exit
fi

# ---- making it ----------------------------------------------------------------------------------------------------

make_venv() {
    local new=$venv.new
    rm -rf "$new" # of a call that was interrupted
    echo "python.sh: making $venv: minutes, this once"
    "$base" -m venv "${venv_options[@]}" "$new" || die "$base cannot make a venv"
    "$new/bin/python3" -m pip install --quiet --retries 5 "${pip_options[@]}" || die "pip cannot install ${pip_options[*]} for $("$base" --version)"
    imports "$new/bin/python3" || die "what was installed in $new cannot be imported"
    # A venv's scripts (activate, pip) have its path in them.
    grep -rlIF "$new" "$new/bin" "$new/pyvenv.cfg" | xargs sed -i "s|$new|$venv|g"
    : >"$new/complete"
    rm -rf "$venv"
    mv "$new" "$venv"
}

if ! is_made; then
    { mkdir -p "$cache" && exec 9>"$cache/lock"; } || die "there can be no $cache"
    flock 9 # two calls at once: the second waits, and finds it made
    if ! is_made; then
        "$(dirname "$0")/../need.sh" || exit 69
        make_venv 9>&-
    fi
fi
answer "$python"
