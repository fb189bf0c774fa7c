needs torch
plan --num-workers 1 --setup 'ulimit -n 64' -- python3 train.py
launch
