import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor


def prefetch(part):
    time.sleep(3)
    return part


rank = int(os.environ["RANK"])
threads = 4 if rank == 0 else 100
with ThreadPoolExecutor(threads) as pool:
    parts = list(pool.map(prefetch, range(threads)))
print("rank", rank, "has", len(parts), "parts")
time.sleep(60)
