import os
import time

for epoch in range(20):
    print("rank", os.environ["RANK"], "epoch", epoch)
    time.sleep(1)
