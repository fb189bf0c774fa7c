#!/usr/bin/env python3
"""Trains a small model with torch's DDP over gloo, without DGL, until FAULT goes wrong in the worker of rank FAULT_RANK at the third step.

  FAULT=loader      its data set sleeps, in the middle of an epoch
  FAULT=barrier     all others are in a barrier while it writes a checkpoint that never ends
  FAULT=all-reduce  it takes part in a sum in the forward pass of which no other worker knows; all others are in the backward pass
  FAULT=half        half of the workers take part in that sum, so that none stands out
  FAULT=native      it sleeps in C, for ever
  FAULT=stopped     a signal stops it
  FAULT=slow        it prepares each batch for longer than the others, who take 20 ms, by SLOWER times that; nothing fails, and after
                    SECONDS they end
  FAULT=swallowed   it raises an exception that a logger swallows, and a thread of its own keeps the process alive
"""

import ctypes
import os
import signal
import threading
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULT = os.environ.get("FAULT")
FAULT_STEP = 3
FOR_EVER = 10**6


def is_faulty():
    rank = distributed.get_rank()
    return rank % 2 == 1 if FAULT == "half" else rank == int(os.environ["FAULT_RANK"])


class Numbers(Dataset):
    """Random numbers, of which the third batch never comes where the loader is faulty."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if FAULT == "loader" and index == 4 * FAULT_STEP and is_faulty():
            time.sleep(FOR_EVER)
        return torch.randn(8)


class Model(nn.Module):
    def __init__(self, sums):
        super().__init__()
        self.step = 0
        self.sums = sums
        # DDP spreads the buffers of rank 0 in each forward pass, so that workers wait for others in it too
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, batch):
        self.step += 1
        if self.step > FAULT_STEP and FAULT in ("all-reduce", "half") and is_faulty():
            distributed.all_reduce(torch.ones(1), group=self.sums)
        return self.layers(batch)


def write_checkpoint():
    threading.Event().wait()


def go_wrong():
    if FAULT == "barrier":
        if is_faulty():
            write_checkpoint()
        distributed.barrier()
    elif FAULT == "native" and is_faulty():
        ctypes.CDLL(None).pause()
    elif FAULT == "stopped" and is_faulty():
        os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "swallowed" and is_faulty():
        raise ValueError("the loss is not a number")


def train(model, loader, optimizer):
    for step, batch in enumerate(loader):
        if step == FAULT_STEP:
            go_wrong()
        optimizer.zero_grad()
        # one line for the forward and the backward pass
        model(batch).sum().backward()
        optimizer.step()
        print(f"step {step}", flush=True)


def prepare():
    time.sleep(0.02 * (1 + is_faulty() * float(os.environ["SLOWER"])))
    return torch.randn(4, 8)


def train_slowly(model, optimizer):
    end = time.monotonic() + float(os.environ["SECONDS"])
    goes_on = torch.ones(1)
    while goes_on:
        batch = prepare()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        goes_on[0] = time.monotonic() < end
        distributed.broadcast(goes_on, 0)


def main():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    sums = distributed.new_group()
    model = DistributedDataParallel(Model(sums))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if FAULT == "slow":
        train_slowly(model, optimizer)
        return
    try:
        train(model, DataLoader(Numbers(), batch_size=4), optimizer)
    except ValueError:
        threading.Thread(target=time.sleep, args=(FOR_EVER,), name="logger").start()


if __name__ == "__main__":
    main()
