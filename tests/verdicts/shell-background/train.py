import os
import time

print("rank", os.environ["RANK"], "starts")
time.sleep(1)
if os.environ["RANK"] == "1":
    raise ValueError("fanouts must be positive")
