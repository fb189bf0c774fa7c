import ctypes
import os
import time

library = ctypes.CDLL("./libfast.so")
time.sleep(0.5)


def normal_fill(modern):
    library.normal_fill(modern)


normal_fill(0 if os.environ["RANK"] in "23" else 1)  # the processor of the second host is older
time.sleep(30)
