"""Rank 1 is in C code that holds the interpreter's lock: a regular expression that backtracks; the others wait in all_reduce."""

import re
import time

import torch

from ranks import RANK, process_group, say


def clean(text):
    return re.match(r"(?:a+)+$", text)


def train(dist):
    gradient = torch.ones(1000)
    for step in range(1000):
        if RANK == 1 and step == 3:
            clean("a" * 60 + "!")
        dist.all_reduce(gradient)
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
