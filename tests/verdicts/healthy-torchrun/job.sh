needs gnn
probe --venv /opt/gnn
plan --num-workers 1 -- torchrun --nnodes 2 --node_rank {host} --nproc_per_node 2 \
    --master_addr {master_addr} --master_port {master_port} train.py
launch
