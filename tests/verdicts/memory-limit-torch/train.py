import os
import time

import torch


def load_features(nodes):
    return torch.ones(nodes, 128)


rank = int(os.environ["RANK"])
load_features(16_000_000 if rank == 1 else 1000)
time.sleep(30)
