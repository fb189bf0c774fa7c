import os
import time

rank = os.environ["RANK"]
with open(f"results/{rank}.csv", "w") as file:
    for step in range(200):
        file.write(f"{step},{'0.125,' * (300 if rank == '3' else 1)}\n")
        file.flush()
        time.sleep(0.01)
time.sleep(30)
