facts '.gpus = 2'
plan --num-workers gpus --env NCCL_SOCKET_IFNAME==ib0 -- python3 train.py
launch
