import os

import torch
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return {"index": torch.tensor(index)}


kept = []
print("rank", os.environ["RANK"], "reads the data set")
for batch in DataLoader(Graphs(), batch_size=1, num_workers=2):
    kept.append(batch["index"])
