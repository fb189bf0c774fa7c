needs gnn
# dgl 1.1.3 and scipy in a directory of their own.
[ -d /opt/gnn/dgl11 ] || exit 69
hosts 1
PYTHONPATH=/opt/gnn/dgl11 DGLBACKEND=pytorch /opt/gnn/bin/python3 partition.py >/dev/null 2>&1
probe --venv /opt/gnn
plan --role server --role trainer --num-trainers 2 --part-config data/g.json --ip-config ip_config.txt \
    --env PYTHONPATH=/opt/gnn/dgl11 --env DGLBACKEND=pytorch -- python3 train.py
launch --timeout 60s
