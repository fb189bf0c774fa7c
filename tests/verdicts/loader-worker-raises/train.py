import os
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 37 and os.environ["RANK"] == "1":
            raise KeyError(f"node {index} has no feature")
        return torch.tensor(index)


for batch in DataLoader(Graphs(), batch_size=4, num_workers=2):
    pass
time.sleep(30)
