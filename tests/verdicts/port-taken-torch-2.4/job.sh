needs gnn
python3 -m http.server 29500 --bind 0.0.0.0 >server.log 2>&1 &
server=$!
probe --venv /opt/gnn
plan --num-workers 2 -- python3 train.py
launch
kill $server
