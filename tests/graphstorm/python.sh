#!/bin/bash
# Prints the path of a Python that has a given version of GraphStorm: python.sh 0.4
#   0.4   beside DGL 1.0.4, of tests/dgl/python.sh: 700 MB
#   0.5   beside DGL 2.1.0, of tests/dgl/version.sh: 700 MB, and 5 GB of DGL's
# Made in the user's cache on the first call. All else goes to stderr. Exit status 69: this machine lacks something, and the message
# says what.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/../venv.sh"

version=${1:?usage: python.sh VERSION}
export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json

# --no-deps: GraphStorm asks for newer packages than DGL's torch and numpy can have, and runs with these all the same.
packages=(ogb==1.3.6 'pandas==2.2.*' 'pyarrow==19.*' 'scikit-learn==1.5.*' 'h5py==3.*' joblib cloudpickle threadpoolctl pytz tzdata regex
    filelock fsspec outdated littleutils)
here=$(cd "$(dirname "$0")" && pwd)
stand_in=
case $version in
    0.4)
        dgl=$("$here/../dgl/python.sh") || exit 69
        packages+=('graphstorm==0.4.*' 'transformers==4.30.*' 'tokenizers==0.13.*' 'safetensors==0.3.*' 'huggingface-hub==0.20.*') ;;
    0.5)
        dgl=$("$here/../dgl/version.sh" 2.1.0) || exit 69
        stand_in=$here/autogluon.py
        packages+=(graphstorm==0.5.1 transformers==4.48.0 'tokenizers==0.21.*' 'safetensors==0.4.*' 'huggingface-hub==0.27.*') ;;
    *) die "$version is none of 0.4 0.5" ;;
esac

venv=$cache/graphstorm-$version-$(cksum <<<"$dgl ${packages[*]}" | cut -d' ' -f1)
lock graphstorm

if [ ! -e "$venv/complete" ]; then
    echo "graphstorm/python.sh: making $venv"
    rm -rf "$venv"
    "$dgl" -m venv --without-pip --system-site-packages "$venv"
    site=$(echo "$venv"/lib/python*/site-packages)
    "$dgl" -m pip install --quiet --retries 5 --no-deps --target "$site" "${packages[@]}" 9>&- || die "pip cannot install GraphStorm"
    [ -z "$stand_in" ] || cp "$stand_in" "$site"
    "$dgl" -c 'import os, dgl, torch
for module in dgl, torch: print(os.path.dirname(os.path.dirname(module.__file__)))' | sort -u >"$site/dgl.pth"
    "$venv/bin/python3" -c 'import graphstorm, dgl, torch' || die "GraphStorm was installed in $venv and cannot be imported"
    : >"$venv/complete"
fi
echo "$venv/bin/python3" >&3
