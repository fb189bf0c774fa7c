#!/usr/bin/env python3
"""A rank of torch.distributed over gloo that goes through trials; see trial.py."""

import os
import sys
import time

import torch
import trial
from torch import distributed


def repeat(operation, elements, rank, size):
    """Does the operation once."""
    tensor = torch.ones(elements)
    if operation == "all_reduce":
        distributed.all_reduce(tensor)
    elif operation == "barrier":
        distributed.barrier()
    elif operation == "all_to_all":
        tensor = torch.ones(elements * size)
        distributed.all_to_all_single(torch.empty(elements * size), tensor)
    elif operation == "all_gather":
        distributed.all_gather([torch.empty(elements) for _ in range(size)], tensor)
    elif operation == "broadcast":
        distributed.broadcast(tensor, 0)
    elif operation == "reduce":
        distributed.reduce(tensor, 0)
    elif operation == "neighbours":
        sent = distributed.isend(tensor, (rank + 1) % size)
        distributed.recv(torch.empty(elements), (rank - 1) % size)
        sent.wait()
    elif operation == "ring":
        # data goes round in one direction, and one rank at a time has it
        if rank > 0:
            distributed.recv(tensor, rank - 1)
        trial.pass_on()
        distributed.send(tensor, (rank + 1) % size)
        if rank == 0:
            distributed.recv(tensor, size - 1)
    elif operation == "pipeline":
        if rank > 0:
            distributed.recv(torch.empty(elements), rank - 1)
        trial.pass_on()
        if rank + 1 < size:
            distributed.send(tensor, rank + 1)
    else:
        sys.exit(f"no operation {operation}")


def take_rank():
    """From mpirun or srun, if no launcher of torch has set it."""
    for rank, size in [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]:
        if rank in os.environ:
            os.environ.setdefault("RANK", os.environ[rank])
            os.environ.setdefault("WORLD_SIZE", os.environ[size])
    if os.environ["RANK"] == os.environ.get("MISSING"):
        sys.exit()
    trial.write(f"begun-{os.environ['RANK']}")


def main():
    take_rank()
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    distributed.all_reduce(torch.ones(1))
    try:
        for operation, elements in trial.steps(rank, barrier="barrier"):
            repeat(operation, elements, rank, size)
    except RuntimeError as error:
        # what a stopped or cut host does to gloo is not what is tried here
        print(error, flush=True)
        time.sleep(3600)


main()
