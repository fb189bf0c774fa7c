import os
import time

import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
store = dist.distributed_c10d._get_default_store()


def load(step):
    if rank == 3 and step == 30:
        time.sleep(600)


def sync(step):
    store.add(f"barrier/{step}", 1)
    while store.add(f"barrier/{step}", 0) < size:
        time.sleep(0.005)


for step in range(200):
    load(step)
    sync(step)
    time.sleep(0.1)
