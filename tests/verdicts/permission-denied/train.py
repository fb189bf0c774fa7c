import os
import time

rank = int(os.environ["RANK"])
time.sleep(0.3)
if rank == 0:
    with open("results/metrics.json", "w") as file:
        file.write("{}")
time.sleep(30)
