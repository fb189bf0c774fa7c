import atexit
import os
import sys
import time


def finish():
    for line in range(40):
        print(f"wandb: uploading run-2024/files/{line:02d}.log", file=sys.stderr)
    print("wandb: View project at: https://wandb.example/gnn", file=sys.stderr)


atexit.register(finish)
if os.environ["RANK"] == "1":
    time.sleep(0.5)
    raise ValueError("fanouts must be positive")
time.sleep(30)
