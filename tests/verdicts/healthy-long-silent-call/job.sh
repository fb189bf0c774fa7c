needs torch
plan --num-workers 1 -- python3 train.py
launch --stall-timeout 5s:end
