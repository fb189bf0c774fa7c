import atexit
import ctypes
import os
import time

library = ctypes.CDLL("./libcache.so")
library.fill()
if os.environ["RANK"] == "2":
    atexit.register(library.release)
atexit.register(library.release)
print("rank", os.environ["RANK"], "epoch 9: accuracy 0.71, done")
time.sleep(0.5 if os.environ["RANK"] == "2" else 3)
