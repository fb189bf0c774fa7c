"""Rank 2 sleeps in its fourth step; the others wait for it in all_reduce."""

import time

import torch

from ranks import RANK, process_group, say


def slow_augmentation():
    time.sleep(100_000)


def train(dist):
    gradient = torch.ones(1000)
    for step in range(1000):
        if RANK == 2 and step == 3:
            slow_augmentation()
        dist.all_reduce(gradient)
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
