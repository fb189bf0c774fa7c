import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.all_reduce(torch.ones(1))
if rank == 0:
    print("rank 0: the best model is saved, done")
    sys.stdout.flush()
    os._exit(0)
time.sleep(1.5)
pair = dist.new_group([1, 2, 3])
dist.all_reduce(torch.ones(1), group=pair)
time.sleep(20)
