import os
import time

if os.environ["RANK"] == "0":
    time.sleep(60)
import numpy as np

print(np.ones((500, 500)).dot(np.ones((500, 500))).sum())
