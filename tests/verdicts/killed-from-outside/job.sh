plan --num-workers 2 -- python3 train.py
(sleep 4; kill -9 $(pgrep -f 'python3 train.py 3$')) &
launch
