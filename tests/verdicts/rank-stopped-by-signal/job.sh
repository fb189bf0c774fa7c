needs torch
plan --num-workers 2 -- python3 train.py
launch --stall-timeout 8s:end --timeout 60s
