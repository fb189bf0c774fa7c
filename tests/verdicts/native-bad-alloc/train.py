import ctypes
import os
import time

library = ctypes.CDLL("./libgraph.so")
time.sleep(0.5)


def build_index(edges):
    library.build_index(ctypes.c_long(edges))


build_index(400_000_000 if os.environ["RANK"] == "3" else 1000)
time.sleep(30)
