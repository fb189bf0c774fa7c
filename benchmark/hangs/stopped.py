"""Rank 3 is stopped, as by a debugger or Ctrl-Z; the others wait in all_reduce."""

import os
import signal
import time

import torch

from ranks import RANK, process_group, say


def train(dist):
    gradient = torch.ones(1000)
    for step in range(1000):
        if RANK == 3 and step == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(gradient)
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
