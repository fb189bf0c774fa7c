import os
import time

rank = int(os.environ["RANK"])
time.sleep(rank * 2.5)
print("rank", rank, "has written its part")
