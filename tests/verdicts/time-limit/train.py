import os
import time

for epoch in range(100):
    print("rank", os.environ["RANK"], "epoch", epoch)
    time.sleep(1)
