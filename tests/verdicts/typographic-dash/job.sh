plan --num-workers 1 -- python3 train.py –lr 0.1
launch
