needs cc
c++ -shared -fPIC -O1 -o libgraph.so graph.cc
plan --num-workers 2 --setup 'ulimit -v 1000000' -- python3 train.py
launch
