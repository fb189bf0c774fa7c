import dgl
import torch

graph = dgl.rand_graph(200, 1000)
graph.ndata["feat"] = torch.ones(200, 4)
graph.ndata["train_mask"] = torch.ones(200, dtype=torch.bool)
dgl.distributed.partition_graph(graph, "g", 1, "data", part_method="random")
