needs gnn
mount -t tmpfs -o size=48m tmpfs /dev/shm
probe --venv /opt/gnn
plan --num-workers 1 -- python3 train.py
launch
