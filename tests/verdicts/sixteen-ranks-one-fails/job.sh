plan --num-workers 8 -- python3 train.py
launch
