"""A pipeline: each rank receives from the one before and sends to the next. Rank 1 sleeps before it sends, so all others starve."""

import time

import torch

from ranks import RANK, WORLD, process_group, say


def forward(activations, step):
    if RANK == 1 and step == 3:
        time.sleep(100_000)
    return activations + 1


def train(dist):
    for step in range(1000):
        activations = torch.zeros(1000)
        if RANK > 0:
            dist.recv(activations, src=RANK - 1)
        activations = forward(activations, step)
        dist.send(activations, dst=(RANK + 1) % WORLD)
        if RANK == 0:
            dist.recv(activations, src=WORLD - 1)
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
