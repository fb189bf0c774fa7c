needs torch
mkdir -p /home/user/.cache/torch_extensions/py311_cpu/sampler
touch /home/user/.cache/torch_extensions/py311_cpu/sampler/lock
plan --num-workers 2 -- python3 train.py
launch --stall-timeout 8s:end --timeout 60s
