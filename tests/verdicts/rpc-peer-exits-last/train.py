import os
import time

import torch.distributed.rpc as rpc

rank = int(os.environ["RANK"])
rpc.init_rpc(f"worker{rank}", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))


def neighbours(node):
    time.sleep(3)
    return [node]


if rank == 1:
    time.sleep(1)
    os.write(2, b"FATAL: shard 1 of the graph is corrupt at offset 8192\n")
    os._exit(3)
print(rpc.rpc_sync("worker1", neighbours, args=(5,)))
rpc.shutdown()
