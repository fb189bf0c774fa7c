import os
import time
from datetime import timedelta

import torch.distributed as dist

rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if rank == 0:
    time.sleep(60)  # it reads its part of the graph
dist.init_process_group(
    "gloo", init_method="tcp://localhost:29500", rank=rank, world_size=world_size, timeout=timedelta(seconds=8)
)
dist.barrier()
