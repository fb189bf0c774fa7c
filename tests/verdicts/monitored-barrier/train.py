import time
from datetime import timedelta

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 3:
    time.sleep(60)
dist.monitored_barrier(timeout=timedelta(seconds=6))
