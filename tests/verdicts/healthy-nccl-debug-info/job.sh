facts '.gpus = 1'
plan --num-workers gpus --env NCCL_DEBUG=INFO -- python3 train.py
launch
