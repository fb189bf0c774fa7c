needs gnn
probe --venv /opt/gnn
plan --num-workers 2 -- accelerate launch --multi_gpu --num_processes 2 train.py
launch --stall-timeout 15s:end --timeout 60s
