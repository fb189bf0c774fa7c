import os
import sys
import time

print("rank", os.environ["RANK"], "epoch 0")
time.sleep(0.5)
if os.environ["RANK"] == "2":
    sys.exit(3)
time.sleep(30)
