import os
import signal

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def load_checkpoint():
    os.kill(os.getpid(), signal.SIGSTOP)  # somebody stopped it, and forgot


dist.barrier()
if rank == 1:
    load_checkpoint()
dist.all_reduce(torch.ones(4))
