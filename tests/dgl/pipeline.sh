#!/bin/bash
# Prints the path of a Python with DGL 1.0.4, of tests/dgl/python.sh, and with the packages that DGL's own partitioning programs import.
# Made in the user's cache on the first call: 200 MB. All else goes to stderr. Exit status 69: this machine lacks something, and the
# message says what.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/../venv.sh"

export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json
packages=('pyarrow==19.*' 'pandas==2.2.*' 'pydantic==1.10.*')
dgl=$("$(dirname "$0")/python.sh") || exit 69
venv=$cache/pipeline-$(cksum <<<"$dgl ${packages[*]}" | cut -d' ' -f1)
lock pipeline

if [ ! -e "$venv/complete" ]; then
    echo "dgl/pipeline.sh: making $venv"
    rm -rf "$venv"
    "$dgl" -m venv --system-site-packages "$venv"
    # before pip runs, so that it finds the numpy of DGL's Python
    "$dgl" -c 'import os, dgl, torch
for module in dgl, torch: print(os.path.dirname(os.path.dirname(module.__file__)))' | sort -u >"$(echo "$venv"/lib/python*/site-packages)/dgl.pth"
    "$venv/bin/python3" -m pip install --quiet --retries 5 "${packages[@]}" 9>&- || die "pip cannot install ${packages[*]}"
    "$venv/bin/python3" -c 'import dgl, pyarrow, pandas, pydantic' || die "the packages in $venv cannot be imported"
    : >"$venv/complete"
fi
echo "$venv/bin/python3" >&3
