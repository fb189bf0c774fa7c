needs cc
cc -shared -fPIC -w -o libcache.so cache.c
plan --num-workers 2 -- python3 train.py
launch
