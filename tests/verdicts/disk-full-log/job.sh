mkdir results
mount -t tmpfs -o size=256k tmpfs results
plan --num-workers 2 -- python3 train.py
launch
