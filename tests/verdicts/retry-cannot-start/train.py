import os

rank = os.environ["RANK"]
if rank == "1":
    os.rename("train.py", "train.py.old")
    raise ValueError("fanouts must be positive")
import time

time.sleep(30)
