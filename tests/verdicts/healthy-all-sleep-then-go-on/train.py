import os
import time

print("rank", os.environ["RANK"], "waits until the data have been published")
time.sleep(9)
print("rank", os.environ["RANK"], "goes on")
