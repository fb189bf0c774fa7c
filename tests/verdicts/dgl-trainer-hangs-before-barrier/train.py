import os
import time

import dgl
import torch

dgl.distributed.initialize("ip_config.txt")
torch.distributed.init_process_group("gloo")
rank = int(os.environ["RANK"])
graph = dgl.distributed.DistGraph("g", part_config="data/g.json")
print("trainer", rank, "has", graph.num_nodes(), "nodes")


def wait_for_labels(path):
    while not os.path.exists(path):
        time.sleep(1)


if rank == 0:
    wait_for_labels("labels.pt")
graph.barrier() if hasattr(graph, "barrier") else dgl.distributed.client_barrier()
