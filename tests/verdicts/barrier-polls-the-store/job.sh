needs torch
plan --num-workers 2 -- python3 train.py
launch --stall-timeout 10s:end --timeout 45s
