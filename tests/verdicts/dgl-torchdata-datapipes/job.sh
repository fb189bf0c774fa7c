needs gnn
# dgl 2.1.0 and scipy in a directory of their own, with torch 2.4.1 and torchdata 0.11 in the environment.
[ -d /opt/gnn/dgl21 ] || exit 69
probe --venv /opt/gnn
plan --num-workers 1 --env PYTHONPATH=/opt/gnn/dgl21 --env DGLBACKEND=pytorch -- python3 train.py
launch
