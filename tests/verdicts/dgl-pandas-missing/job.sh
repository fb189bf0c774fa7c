needs gnn
# dgl 2.1.0 and scipy in one directory, torchdata 0.7.1 in another, and torch 2.4.1 in the environment.
[ -d /opt/gnn/dgl21 ] || exit 69
probe --venv /opt/gnn
plan --num-workers 1 --env PYTHONPATH=/opt/gnn/td071:/opt/gnn/dgl21 --env DGLBACKEND=pytorch -- python3 train.py
launch
