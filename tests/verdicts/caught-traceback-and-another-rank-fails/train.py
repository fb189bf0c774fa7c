import logging
import os
import time

logging.basicConfig()
rank = int(os.environ["RANK"])
if rank == 1:
    try:
        open("cache.pkl")
    except OSError:
        logging.exception("no cache, it is made again")
time.sleep(1)
if rank == 2:
    raise IndexError("node 812 of partition 2 has no neighbour list")
time.sleep(30)
