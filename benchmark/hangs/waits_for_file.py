"""Rank 0 polls for a file that nobody writes; the others wait in a barrier."""

import os
import time

from ranks import RANK, process_group, say


def wait_for_download(path):
    while not os.path.exists(path):
        time.sleep(1)


def main(dist):
    say("started")
    if RANK == 0:
        wait_for_download("/nonexistent/dataset.done")
    dist.barrier()
    say("ready")


main(process_group())
