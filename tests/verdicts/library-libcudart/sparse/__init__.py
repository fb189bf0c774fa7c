import ctypes
import os

lib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "libsparse.so"))
