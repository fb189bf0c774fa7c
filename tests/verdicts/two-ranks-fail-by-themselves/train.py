import os
import time

rank = int(os.environ["RANK"])
time.sleep(1)
if rank == 0:
    raise KeyError("label")
time.sleep(0.02)
if rank == 3:
    raise ZeroDivisionError("no batches")
time.sleep(30)
