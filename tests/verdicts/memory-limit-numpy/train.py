import os
import time

import numpy as np


def load_features(nodes):
    return np.ones((nodes, 128), dtype=np.float32)


rank = int(os.environ["RANK"])
load_features(4_000_000 if rank == 1 else 1000)
time.sleep(30)
