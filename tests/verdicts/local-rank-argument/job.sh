needs torch
plan --num-workers 2 --local-rank-arg -- python3 train.py
launch
