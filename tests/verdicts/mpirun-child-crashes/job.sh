needs mpirun cc
cc -shared -fPIC -w -o libsample.so sample.c
hosts 1
plan --num-workers 1 -- mpirun --allow-run-as-root --oversubscribe --mca oob_tcp_if_include lo -np 3 python3 train.py
launch
