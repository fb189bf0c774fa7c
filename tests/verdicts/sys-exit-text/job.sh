plan --num-workers 2 -- python3 train.py --fanout 10,25 --layers 3
launch
