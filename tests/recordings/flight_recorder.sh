#!/bin/bash
# Makes dumps of torch's flight recorder anew, into tools/dgl-why/tests/flight_recorder; needs 7 GB in the user's cache.
#   flight_recorder.sh [CASE...]     those cases of flight_recorder.py; without one all of them
set -euo pipefail
cd "$(dirname "$0")"
bin=$(../pip.sh torch-2.9.1 numpy-config torch==2.9.1 numpy)

[ $# -gt 0 ] || set -- absent missing overwritten timed-out different sizes nccl-chain nccl-pair
for case; do
    to=../../tools/dgl-why/tests/flight_recorder/$case
    rm -rf "$to"
    mkdir -p "$to"
    size=2000
    [ "$case" != overwritten ] || size=3
    # torchrun ends the others when the first has ended, with status 1 if that was by an exception
    TORCH_FR_BUFFER_SIZE=$size OMP_NUM_THREADS=1 "$bin/python" -m torch.distributed.run --standalone --nproc-per-node 3 \
        flight_recorder.py "$to" "$case"
    ls -l "$to"
done
