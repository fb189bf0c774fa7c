plan -- python3 train.py
launch
