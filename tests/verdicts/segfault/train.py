import ctypes
import os
import time


def gather_rows(address):
    return ctypes.string_at(address, 64)


time.sleep(0.5)
if os.environ["RANK"] == "1":
    gather_rows(16)
time.sleep(30)
