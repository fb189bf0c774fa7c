import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layers = 3 if dist.get_rank() == 1 else 2
model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(layers)])
model = DistributedDataParallel(model)
