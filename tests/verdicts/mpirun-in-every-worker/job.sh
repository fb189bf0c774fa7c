needs mpirun torch
plan --num-workers 1 -- mpirun --allow-run-as-root --oversubscribe --mca oob_tcp_if_include lo -np 2 python3 train.py
launch --stall-timeout 10s:end --timeout 60s
