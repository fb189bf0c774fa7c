# sage_model.py lies beside train.py where it was written, and was not copied.
plan --num-workers 1 -- python3 code/train.py
launch
