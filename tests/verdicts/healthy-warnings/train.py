import os
import warnings

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.save({"epoch": 1}, f"{os.environ['RANK']}.pt")
torch.load(f"{os.environ['RANK']}.pt")
DataLoader(range(8), num_workers=16)
warnings.warn("lr_scheduler.step() before optimizer.step(): failing to do this will result in an error later")
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("done")
