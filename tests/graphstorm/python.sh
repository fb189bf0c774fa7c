#!/bin/bash
# Prints the path of a Python that has GraphStorm 0.4 beside DGL 1.0.4, of tests/dgl/python.sh. 700 MB in the user's cache, made on the
# first call. All else goes to stderr. Exit status 69: this machine lacks something, and the message says what.
set -euo pipefail
exec 3>&1 1>&2

export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json
die() { echo "graphstorm/python.sh: $1" >&2; exit 69; }

dgl=$("$(dirname "$0")/../dgl/python.sh") || exit 69

# --no-deps: GraphStorm asks for newer packages than torch 1.13 and numpy 1.24 can have, and runs with these all the same.
packages=('graphstorm==0.4.*' ogb==1.3.6 'pandas==2.2.*' 'pyarrow==19.*' 'scikit-learn==1.5.*' 'h5py==3.*' 'transformers==4.30.*'
    'tokenizers==0.13.*' 'safetensors==0.3.*' 'huggingface-hub==0.20.*' joblib cloudpickle threadpoolctl pytz tzdata regex filelock fsspec
    outdated littleutils)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dgl-tools
venv=$cache/graphstorm-$(cksum <<<"$dgl ${packages[*]}" | cut -d' ' -f1)
exec 9>"$cache/lock-graphstorm"
flock 9 # two calls at once: the second waits, and finds it made

if [ ! -e "$venv/complete" ]; then
    echo "graphstorm/python.sh: making $venv"
    rm -rf "$venv"
    "$dgl" -m venv --without-pip --system-site-packages "$venv"
    site=$(echo "$venv"/lib/python*/site-packages)
    "$dgl" -m pip install --quiet --retries 5 --no-deps --target "$site" "${packages[@]}" 9>&- || die "pip cannot install GraphStorm"
    "$dgl" -c 'import os, dgl, torch
for module in dgl, torch: print(os.path.dirname(os.path.dirname(module.__file__)))' | sort -u >"$site/dgl.pth"
    "$venv/bin/python3" -c 'import graphstorm, dgl, torch' || die "GraphStorm was installed in $venv and cannot be imported"
    : >"$venv/complete"
fi
echo "$venv/bin/python3" >&3
