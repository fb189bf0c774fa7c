import os
import time

import torch

rank = int(os.environ["RANK"])


def save(epoch, weights):
    if rank == 0:
        torch.save({"epoch": epoch, "weights": weights}, f"checkpoints/{epoch}.pt")


for epoch in range(10):
    save(epoch, torch.ones(200_000))
    print("epoch", epoch, "is done")
    time.sleep(0.5)
time.sleep(30)
