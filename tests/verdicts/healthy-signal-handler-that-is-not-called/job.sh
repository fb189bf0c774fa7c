plan --num-workers 1 -- python3 train.py
launch
