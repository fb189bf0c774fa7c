#!/bin/bash
# Prints the path of a Python 3.11 that has GLT (graphlearn-torch 0.2.4) and torch 2.4. 3.5 GB in the user's cache, made on the first call.
# All else goes to stderr. Exit status 69: this machine lacks something, and the message says what.
# shellcheck source=tests/venv.sh
. "$(dirname "$0")/../venv.sh"

base=$(interpreter 3.11)

# GLT's wheel fits this torch: 2.2 lacks a symbol of it. Of what torch for CUDA asks for, that is without which it cannot be imported.
torch=(torch==2.4.1 nvidia-cublas-cu12==12.1.3.1 nvidia-cuda-cupti-cu12==12.1.105 nvidia-cuda-nvrtc-cu12==12.1.105
    nvidia-cuda-runtime-cu12==12.1.105 nvidia-cudnn-cu12==9.1.0.70 nvidia-cufft-cu12==11.0.2.54 nvidia-curand-cu12==10.3.2.106
    nvidia-cusolver-cu12==11.4.5.107 nvidia-cusparse-cu12==12.1.0.106 nvidia-nccl-cu12==2.20.5 nvidia-nvjitlink-cu12==12.6.* nvidia-nvtx-cu12==12.1.105)
others=(graphlearn-torch==0.2.4 torch_geometric==2.6.1 'numpy<2' sympy networkx filelock typing_extensions)

stand_in=$(cd "$(dirname "$0")" && pwd)/torch_sparse.py
venv=$cache/glt-$(cksum <<<"$base ${torch[*]} ${others[*]}" | cut -d' ' -f1)
lock glt

if [ ! -e "$venv/complete" ]; then
    echo "glt/python.sh: making $venv"
    rm -rf "$venv"
    "$base" -m venv "$venv"
    pip() { "$venv/bin/python" -m pip install --quiet --retries 5 --no-cache-dir --no-compile "$@" 9>&- || die "pip cannot install $*"; }
    pip "${others[@]}"
    pip --no-deps "${torch[@]}"
    site=$(echo "$venv"/lib/python*/site-packages)
    rm "$site"/nvidia/cudnn/lib/libcudnn_* # 1 GB that is loaded where there is a GPU
    cp "$stand_in" "$site"
    "$venv/bin/python" -c 'import graphlearn_torch.distributed' || die "GLT was installed in $venv and cannot be imported"
    : >"$venv/complete"
fi
echo "$venv/bin/python" >&3
