import sys
import time
import traceback

import torch
import torch.distributed as dist


def upload_logs():
    time.sleep(6)  # to a slow object store


def train(rank):
    for step in range(10):
        if rank == 1 and step == 3:
            raise ValueError("step 3: loss is nan")
        dist.all_reduce(torch.ones(8))
        time.sleep(0.2)


dist.init_process_group("gloo")
rank = dist.get_rank()
try:
    train(rank)
except ValueError:
    traceback.print_exc()
    dist.destroy_process_group()
    upload_logs()
    sys.exit(1)
