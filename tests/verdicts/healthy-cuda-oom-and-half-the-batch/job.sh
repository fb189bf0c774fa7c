facts '.gpus = 1'
plan --num-workers gpus -- python3 train.py
launch
