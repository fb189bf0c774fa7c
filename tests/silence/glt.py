#!/usr/bin/env python3
"""A process of GLT that goes through trials; see trial.py. A worker trains on batches of a sampler of
its own, which asks those of the other workers; a client, on batches that the server with its rank
samples for it. It has the options of examples/glt/code/sage.py.

Usage: glt.py worker|server|client OPTION..."""

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


def serve(args):
    trial.write(f"server-{args.node_rank}", str(os.getpid()))
    glt.distributed.init_server(
        args.num_server_nodes,
        args.node_rank,
        sage.dataset(args),
        args.master_addr,
        args.server_client_master_port,
        args.num_client_nodes,
    )
    glt.distributed.wait_and_shutdown_server()


def begin(args):
    """Begins as a worker or a client. Returns how many there are, and the worker's data."""
    if args.role == "worker":
        glt.distributed.init_worker_group(args.num_nodes, args.node_rank)
        return args.num_nodes, sage.dataset(args)
    glt.distributed.init_client(
        args.num_server_nodes,
        args.num_client_nodes,
        args.node_rank,
        args.server_addr,
        args.server_client_master_port,
    )
    return args.num_client_nodes, None


def main():
    args = sage.options()
    torch.set_num_threads(1)
    torch.multiprocessing.set_start_method("spawn")
    if args.role == "server":
        return serve(args)
    size, data = begin(args)
    distributed.init_process_group(
        "gloo",
        rank=args.node_rank,
        world_size=size,
        init_method=f"tcp://{args.master_addr}:{args.training_pg_master_port}",
    )
    batches = forever(sage.loader(args, "train", args.train_loader_master_port, data))
    model = DistributedDataParallel(sage.GraphSAGE(16, 32, num_layers=2, out_channels=4))
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


if __name__ == "__main__":  # samplers are spawned, and import this file again
    main()
