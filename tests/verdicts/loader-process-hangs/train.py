import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if dist.get_rank() == 3 and index == 40:
            time.sleep(1000)  # as a read from a file server that does not answer
        return torch.ones(4)


dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
for epoch in range(100):
    for batch in DataLoader(Rows(), batch_size=4, num_workers=1):
        model(batch).sum().backward()
    print("epoch", epoch, flush=True)
