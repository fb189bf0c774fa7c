needs torch
# Debian 12's torchrun does not work with its Python 3.11 without the sitecustomize.py.
plan --num-workers 1 --env PYTHONPATH=/srv/job -- torchrun --nnodes 2 --node_rank {host} --nproc_per_node 2 \
    --master_addr {master_addr} --master_port {master_port} train.py
launch
