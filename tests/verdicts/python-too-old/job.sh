[ -x /opt/gnn/bin/python3.8 ] || exit 69 # any Python before 3.10
plan --num-workers 1 -- /opt/gnn/bin/python3.8 train.py
launch
