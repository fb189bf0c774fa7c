"""A worker of rank 1's data loader hangs, so rank 1 waits for a batch; the others wait in all_reduce."""

import time

import torch
from torch.utils.data import DataLoader, Dataset

from ranks import RANK, process_group, say


class Images(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if RANK == 1 and index == 12:
            self.fetch(index)
        return torch.ones(8)

    def fetch(self, index):
        time.sleep(100_000)


def train(dist):
    for step, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=1)):
        dist.all_reduce(batch)
        say(f"step {step}")
        time.sleep(0.2)


if __name__ == "__main__":
    train(process_group())
