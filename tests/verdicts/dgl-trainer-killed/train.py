import os
import time

import dgl
import torch

dgl.distributed.initialize("ip_config.txt")
torch.distributed.init_process_group("gloo")
rank = int(os.environ["RANK"])
graph = dgl.distributed.DistGraph("g", part_config="data/g.json")
print("trainer", rank, "has", graph.num_nodes(), "nodes")

for step in range(40):
    graph.ndata["feat"][torch.arange(8)]
    torch.distributed.barrier()
    if rank == 1 and step == 20:
        os.kill(os.getpid(), 9)
    time.sleep(0.05)
