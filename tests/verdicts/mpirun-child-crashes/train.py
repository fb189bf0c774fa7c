import ctypes
import os
import time

library = ctypes.CDLL("./libsample.so")
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
time.sleep(1)


def sample(seeds):
    library.sample(seeds)


if rank == 2:
    sample(0)
time.sleep(30)
