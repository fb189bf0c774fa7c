#!/usr/bin/env python3
"""What a graph server of DGL takes, measured: the figures behind part-fit.

make   writes a random graph of a given size, in two partitions
serve  loads one of them as a server does and prints what that took, a JSON object: the most resident memory, what lies in
       /dev/shm, and what the process took before. It needs a /dev/shm of its own.
Written for DGL 1.0 to 2.1.
"""

import argparse
import contextlib
import gc
import json
import os
import sys
import tempfile

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl
import torch


def homogeneous(args):
    graph = dgl.graph(tuple(torch.randint(args.nodes, (2, args.edges))), num_nodes=args.nodes)
    if args.node_dim:
        graph.ndata["feat"] = torch.zeros(args.nodes, args.node_dim)
    if args.edge_dim:
        graph.edata["feat"] = torch.zeros(args.edges, args.edge_dim)
    return graph


def heterogeneous(args):
    users, items = args.nodes // 2, args.nodes - args.nodes // 2
    follows = torch.randint(users, (2, args.edges // 2))
    buys = torch.randint(users, (args.edges // 2,)), torch.randint(items, (args.edges // 2,))
    graph = dgl.heterograph(
        {("user", "follows", "user"): tuple(follows), ("user", "buys", "item"): buys},
        num_nodes_dict={"user": users, "item": items},
    )
    if args.node_dim:
        for kind in graph.ntypes:
            graph.nodes[kind].data["feat"] = torch.zeros(graph.num_nodes(kind), args.node_dim)
    if args.edge_dim:
        for kind in graph.canonical_etypes:
            graph.edges[kind].data["feat"] = torch.zeros(graph.num_edges(kind), args.edge_dim)
    return graph


def make(args):
    torch.manual_seed(1)
    graph = heterogeneous(args) if args.types == 2 else homogeneous(args)
    options = {"use_graphbolt": True} if args.graphbolt else {}
    with contextlib.redirect_stdout(sys.stderr):
        dgl.distributed.partition_graph(graph, "g", 2, args.out, part_method="random", **options)


def status():
    """Of this process, in bytes, as /proc/self/status has it."""
    with open("/proc/self/status") as text:
        lines = [line.split() for line in text if line.startswith(("VmHWM:", "RssAnon:", "RssFile:", "RssShmem:"))]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def shared_bytes():
    with os.scandir("/dev/shm") as files:
        return sum(file.stat().st_blocks * 512 for file in files)


def serve(args):
    hosts = tempfile.NamedTemporaryFile("w")
    hosts.write("127.0.0.1 30050\n127.0.0.2 30050\n")
    hosts.flush()
    gc.collect()
    before = status()
    options = {"use_graphbolt": True} if args.graphbolt else {}
    with contextlib.redirect_stdout(sys.stderr):
        # as dgl.distributed.initialize does in a server
        dgl.distributed.rpc.reset()
        server = dgl.distributed.DistGraphServer(
            0, hosts.name, 1, 1, args.config, graph_format=args.formats.split(","), **options
        )
    found = {"peak": status()["VmHWM"], "shm": shared_bytes(), "before": before, "after": status()}
    found.update(dgl=dgl.__version__, torch=torch.__version__)
    print(json.dumps(found))
    del server


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("--out", required=True)
    maker.add_argument("--nodes", type=int, required=True)
    maker.add_argument("--edges", type=int, required=True)
    maker.add_argument("--node-dim", type=int, default=0)
    maker.add_argument("--edge-dim", type=int, default=0)
    maker.add_argument("--types", type=int, choices=[1, 2], default=1)
    maker.add_argument("--graphbolt", action="store_true")
    server = commands.add_parser("serve")
    server.add_argument("--config", required=True)
    server.add_argument("--formats", default="csc")
    server.add_argument("--graphbolt", action="store_true")
    args = parser.parse_args()
    make(args) if args.command == "make" else serve(args)


if __name__ == "__main__":
    main()
