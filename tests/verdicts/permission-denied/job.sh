mkdir -m 755 results
as_user
chown root:root results
plan --num-workers 2 -- python3 train.py
launch
