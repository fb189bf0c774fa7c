import os

import numpy as np

np.random.seed(int(os.environ["RANK"]))
keys = np.random.bytes(60_000_000)
order = np.sort(np.array([keys], dtype="S60000000").view("S3"), kind="mergesort")
for repeat in range(2):
    order = np.sort(np.concatenate([order[::-1]] * 2)[: 20_000_000])
print("rank", os.environ["RANK"], "has sorted", len(order), "keys")
