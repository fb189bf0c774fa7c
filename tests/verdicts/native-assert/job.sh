needs cc
cc -shared -fPIC -w -o libtensor.so tensor.c
plan --num-workers 2 -- python3 train.py
launch
