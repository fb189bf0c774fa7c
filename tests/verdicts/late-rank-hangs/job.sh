needs torch
plan --num-workers 2 -- python3 train.py
launch --stall-timeout 15s:end --timeout 90s
