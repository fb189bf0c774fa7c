import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
print("rank", rank, "has joined")
if rank == 0:
    sys.exit("config.yaml: fanout has 2 numbers and num_layers is 3")
time.sleep(2)
dist.new_group([1, 2, 3])
dist.all_reduce(torch.ones(1))
