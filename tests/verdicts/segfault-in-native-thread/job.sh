needs cc
cc -shared -fPIC -pthread -w -o libsampler.so sampler.c
plan --num-workers 2 -- python3 train.py
launch
