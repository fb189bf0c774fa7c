import time

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 2:
    time.sleep(9)  # its storage is slow today
dist.barrier()
print("rank", rank, "has passed")
