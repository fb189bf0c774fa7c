needs torch
plan --num-workers 1 --setup 'ulimit -v 6000000' -- python3 train.py
launch
