needs torch
mkdir checkpoints
mount -t tmpfs -o size=2m tmpfs checkpoints
plan --num-workers 1 -- python3 train.py
launch
