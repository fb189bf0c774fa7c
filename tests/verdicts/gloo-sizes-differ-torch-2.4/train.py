import torch
import torch.distributed as dist


def average_gradients(gradients):
    dist.all_reduce(gradients)
    return gradients / dist.get_world_size()


dist.init_process_group("gloo")
rows = 1000 if dist.get_rank() == 2 else 500
for step in range(5):
    average_gradients(torch.ones(rows, 64))
print("done")
