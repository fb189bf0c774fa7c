import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


def share_statistics(tensor):
    if rank == 2:
        dist.broadcast(tensor, 0)
    else:
        dist.all_reduce(tensor)


share_statistics(torch.ones(4))
