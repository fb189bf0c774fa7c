import os
import time

import numpy as np


def degrees(count):
    return np.zeros(count, dtype=np.int)


time.sleep(int(os.environ["RANK"]))
print(degrees(10))
