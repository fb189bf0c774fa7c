needs cc
c++ -shared -fPIC -O1 -o libpartition.so partition.cc
plan --num-workers 2 -- python3 train.py
launch
