import ctypes
import os
import time

library = ctypes.CDLL("./libtensor.so")
time.sleep(0.5)


def slice_rows(count):
    library.slice_rows(count)


slice_rows(0 if os.environ["RANK"] == "1" else 8)
time.sleep(30)
