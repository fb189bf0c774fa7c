"""Rank 1 opens a named pipe that has no writer: it waits in open(2); the others wait in a barrier of their own."""

import os
import tempfile
import time

from ranks import RANK, Star, say


def next_shard(path):
    with open(path, "rb") as file:
        return file.read()


def train(star):
    for step in range(1000):
        if RANK == 1 and step == 3:
            path = os.path.join(tempfile.mkdtemp(), "shards")
            os.mkfifo(path)
            next_shard(path)
        star.barrier()
        say(f"step {step}")
        time.sleep(0.2)


train(Star())
