facts '.gpus = 2'
plan --num-workers gpus -- python3 train.py
launch
