as_user
plan --num-workers 1 --setup 'ulimit -u 40' -- python3 train.py
launch
