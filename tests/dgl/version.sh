#!/bin/bash
# Prints the path of a Python that has a given version of DGL: version.sh 0.9.1
#   0.5.3 0.6.1 0.9.1 1.0.4   Python 3.8 with torch 1.9.1; 2 GB for all four
#   1.1.3 2.1.0               Python 3.11 with torch 2.2.1; 5 GB
# Made in the user's cache on the first call: a venv with torch, shared, and one a version that holds DGL and looks into the first.
# All else goes to stderr. Exit status 69: this machine lacks something, and the message says what.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/../venv.sh"

version=${1:?usage: version.sh VERSION}
export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json

case $version in
    0.5.3 | 0.6.1 | 0.9.1 | 1.0.4)
        wanted=3.8 torch=(torch==1.9.1 'numpy<1.24' scipy networkx requests psutil tqdm packaging) ;;
    1.1.3 | 2.1.0)
        wanted=3.11 torch=(torch==2.2.1 'numpy<2' scipy networkx requests psutil tqdm torchdata==0.7.1 pydantic pyyaml pandas packaging) ;;
    *) die "$version is none of 0.5.3 0.6.1 0.9.1 1.0.4 1.1.3 2.1.0" ;;
esac

base=$(interpreter "$wanted")
shared=$cache/torch-python$wanted-$(cksum <<<"$base ${torch[*]}" | cut -d' ' -f1)
venv=$cache/version-$version-${shared##*-}
lock versions

if [ ! -e "$shared/complete" ]; then
    echo "version.sh: making $shared"
    rm -rf "$shared"
    "$base" -m venv "$shared"
    "$shared/bin/python" -m pip install --quiet --retries 5 "${torch[@]}" 9>&- || die "pip cannot install ${torch[*]}"
    : >"$shared/complete"
fi
if [ ! -e "$venv/complete" ]; then
    echo "version.sh: making $venv"
    rm -rf "$venv"
    "$base" -m venv --without-pip "$venv"
    site=$(echo "$venv"/lib/python*/site-packages)
    "$shared/bin/python" -m pip install --quiet --retries 5 --no-deps --target "$site" "dgl==$version" 9>&- || die "pip cannot install dgl==$version"
    echo "$shared"/lib/python*/site-packages >"$site/torch.pth"
    "$venv/bin/python" -c 'import dgl, torch' || die "dgl $version was installed in $venv and cannot be imported"
    : >"$venv/complete"
fi
echo "$venv/bin/python" >&3
