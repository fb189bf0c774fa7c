import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def find_root(parent, node):
    while parent[node] != node:
        node = parent[node]
    return node


dist.barrier()
if rank == 3:
    find_root([1, 2, 0], 0)
dist.barrier()
