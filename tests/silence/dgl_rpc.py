#!/usr/bin/env python3
"""A graph server or a trainer of DGL that goes through trials; see trial.py. Trainers pull features
from all servers by DGL's RPC, and meet in gloo or in DGL's own barrier.

Usage: dgl_rpc.py IP_CONFIG PART_CONFIG"""

import os
import sys

import trial

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl
import torch
from dgl.distributed import rpc
from torch import distributed


class Held(rpc.Response):
    def __getstate__(self):
        return ()

    def __setstate__(self, state):
        pass


class Hold(rpc.Request):
    """Keeps a server busy until there is a file."""

    def __init__(self, name):
        self.name = name

    def __getstate__(self):
        return self.name

    def __setstate__(self, state):
        self.name = state

    def process_request(self, server_state):
        trial.wait_for(self.name)
        return Held()


def hold(server, name):
    rpc.remote_call([(server, Hold(name))])


def repeat(operation, nodes, graph):
    """Does the operation once."""
    chosen = torch.randint(graph.num_nodes(), (max(nodes, 64),))
    graph.ndata["feat"][chosen]
    if operation == "train":
        distributed.all_reduce(torch.ones(nodes))
    elif operation == "barrier":
        rpc.client_barrier()
    elif operation != "pull":
        sys.exit(f"no operation {operation}")


def main():
    ip_config, part_config = sys.argv[1:]
    role, number = os.environ["DGL_ROLE"], os.environ.get("DGL_SERVER_ID", "")
    if role == "server":
        trial.write(f"server-{number}", str(os.getpid()))
    rpc.register_service(77001, Hold, Held)
    dgl.distributed.initialize(ip_config)  # in servers this never returns
    distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("g", part_config=part_config)
    for operation, nodes in trial.steps(distributed.get_rank(), "barrier", hold):
        repeat(operation, nodes, graph)
    os._exit(0)


main()
