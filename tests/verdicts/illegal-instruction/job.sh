needs cc
cc -shared -fPIC -w -o libfast.so fast.c
plan --num-workers 2 -- python3 train.py
launch
