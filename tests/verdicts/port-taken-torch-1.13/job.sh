needs torch
python3 -m http.server 29500 --bind 10.0.0.1 >server.log 2>&1 &
server=$!
plan --num-workers 2 -- python3 train.py
launch
kill $server
