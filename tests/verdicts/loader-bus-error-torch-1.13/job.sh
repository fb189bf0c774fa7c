needs torch
mount -t tmpfs -o size=48m tmpfs /dev/shm
plan --num-workers 1 -- python3 train.py
launch
