plan --num-workers 2 -- python3 train.py
launch
