import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
sent, received = torch.ones(1 << 20), torch.empty(1 << 20)


def exchange(is_odd_first):
    if rank == 0 or not is_odd_first:
        dist.send(sent, 1 - rank)
        dist.recv(received, 1 - rank)
    else:
        dist.recv(received, 1 - rank)
        dist.send(sent, 1 - rank)


for step in range(20):
    exchange(step < 10)
    print("microbatch", step, flush=True)
    time.sleep(0.2)
