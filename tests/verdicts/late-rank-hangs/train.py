import os
import time

import torch.distributed as dist

rank = int(os.environ["RANK"])
if rank == 2:
    time.sleep(3600)
dist.init_process_group("gloo")
print("rank", rank, "has joined")
