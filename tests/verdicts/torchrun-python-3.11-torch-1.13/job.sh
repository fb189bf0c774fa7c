# Debian 12 has torch 1.13 for Python 3.11, whose torchrun needs --redirects and --tee there.
needs torch
plan --num-workers 1 -- torchrun --nnodes 2 --node_rank {host} --nproc_per_node 2 \
    --master_addr {master_addr} --master_port {master_port} train.py
launch
