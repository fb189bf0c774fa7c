import os
import time

import dgl
import torch

dgl.distributed.initialize("ip_config.txt")
torch.distributed.init_process_group("gloo")
rank = int(os.environ["RANK"])
graph = dgl.distributed.DistGraph("g", part_config="data/g.json")
print("trainer", rank, "has", graph.num_nodes(), "nodes")
