needs gnn
as_user
probe --venv /opt/gnn
plan --num-workers 1 --num-omp-threads 64 --setup 'ulimit -u 5' -- python3 train.py
launch
