"""Rank 3 calls broadcast where the others call all_reduce."""

import time

import torch

from ranks import RANK, process_group, say


def train(dist):
    gradient = torch.ones(1000)
    for step in range(1000):
        if RANK == 3 and step == 3:
            dist.broadcast(gradient, src=1)
            dist.barrier()
        dist.all_reduce(gradient)
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
