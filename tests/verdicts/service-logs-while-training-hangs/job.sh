needs torch
plan --program store --on 0 --service -- python3 store.py
plan --program train --num-workers 2 -- python3 train.py
launch --stall-timeout 10s:end --timeout 45s
