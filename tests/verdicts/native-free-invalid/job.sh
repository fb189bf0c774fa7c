needs cc
cc -shared -fPIC -w -o libaggregate.so aggregate.c
plan --num-workers 2 -- python3 train.py
launch
