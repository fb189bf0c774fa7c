needs gnn
probe --venv /opt/gnn
plan --num-workers 2 --env TORCH_DISTRIBUTED_DEBUG=DETAIL -- python3 train.py
launch
