needs torch
plan -- python3 train.py
launch --timeout 45s
