needs gnn
probe --venv /opt/gnn
plan --num-workers 1 -- python3 train.py
launch
