needs gnn
probe --venv /opt/gnn
plan --num-workers 1 '/opt/gnn/bin/python3 train.py; status=$?; [ $RANK = 0 ] || sleep 4; exit $status'
launch
