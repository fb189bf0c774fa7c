import os
import sys
import time

rank = os.environ["RANK"]
if rank == "1":
    sys.stderr = open(1, "w", closefd=False)


def save(epoch, weights):
    with open(f"checkpoints/{rank}.bin", "ab") as file:
        file.write(weights)
    print("epoch", epoch, "is saved")


for epoch in range(5):
    save(epoch, b"x" * 4096)
    time.sleep(0.3)
time.sleep(30)
