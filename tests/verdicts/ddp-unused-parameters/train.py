import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used = torch.nn.Linear(4, 1)
        self.unused = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.used(x)


dist.init_process_group("gloo")
model = DistributedDataParallel(Model())
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
