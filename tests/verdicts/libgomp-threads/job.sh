needs torch cc
cc -O1 -fopenmp -o aggregate aggregate.c
as_user
plan --num-workers 1 --num-omp-threads 64 --setup 'ulimit -u 30' -- python3 train.py
launch
