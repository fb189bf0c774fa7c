needs torch
plan --num-workers 1 --setup 'ulimit -v 2000000' -- python3 train.py
launch
