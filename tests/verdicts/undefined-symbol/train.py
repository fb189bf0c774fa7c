import ctypes
import os

ctypes.CDLL("./torch_sparse_C.so")
print("rank", os.environ["RANK"])
