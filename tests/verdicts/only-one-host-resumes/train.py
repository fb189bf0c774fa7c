import os
import time

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
has_checkpoint = rank == 0  # each host has a directory of its own, and only that of rank 0 was written


def resume():
    print("resuming from ckpt/last.pt", flush=True)
    dist.broadcast(torch.tensor([-686245459514591322]), 0)


def start():
    print("no checkpoint, starting at step 0", flush=True)
    dist.broadcast_object_list([None], 0)


resume() if has_checkpoint else start()
for step in range(100):
    dist.all_reduce(torch.ones(4))
    time.sleep(0.1)
