#!/usr/bin/env python3
"""A worker of GLT that goes through trials; see trial.py. It trains on batches of a sampler of its own,
which asks those of the other workers, and has the options of tests/glt/sage.py.

Usage: glt.py worker OPTION..."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../glt"))

import graphlearn_torch as glt
import sage
import torch
import torch.nn.functional as F
import trial
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def forever(loader):
    while True:
        yield from loader


def train(model, batch):
    out = model(batch.x, batch.edge_index)[: batch.batch_size]
    F.cross_entropy(out, batch.y[: batch.batch_size]).backward()


def main():
    args = sage.options()
    torch.set_num_threads(1)
    torch.multiprocessing.set_start_method("spawn")
    glt.distributed.init_worker_group(args.num_nodes, args.node_rank)
    distributed.init_process_group(
        "gloo",
        rank=args.node_rank,
        world_size=args.num_nodes,
        init_method=f"tcp://{args.master_addr}:{args.training_pg_master_port}",
    )
    loader = sage.loader(args, "train", args.train_loader_master_port, sage.dataset(args))
    model = DistributedDataParallel(sage.GraphSAGE(16, 32, num_layers=2, out_channels=4))
    batches = forever(loader)
    for operation, _ in trial.steps(args.node_rank, "barrier"):
        if operation == "train":
            train(model, next(batches))
        elif operation == "sample":
            next(batches)
            distributed.barrier()
        elif operation == "barrier":
            distributed.barrier()
        else:
            sys.exit(f"no operation {operation}")
    os._exit(0)


if __name__ == "__main__":  # its sampler is spawned, and imports this file again
    main()
