#!/usr/bin/env python3
"""What processes of DGL take, measured: the figures behind part-fit.

make   writes a random graph of a given size, in two partitions
serve  loads one of them as a server does and prints what that took, a JSON object: the most resident memory, what lies in
       /dev/shm, and what the process took before. It needs a /dev/shm of its own.
run    is each process of a job on one host that trains the model of train.py; the first trainer prints what each process of
       the job takes, a JSON object a process, once before the first batch and once after the last
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
from torch import distributed


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
    if args.labels:
        graph.ndata["label"] = torch.arange(args.nodes) % 2
        graph.ndata["train_mask"] = torch.arange(args.nodes) < args.labels
    with contextlib.redirect_stdout(sys.stderr):
        dgl.distributed.partition_graph(graph, "g", args.parts, args.out, part_method="random", **options)


def status(pid="self"):
    """Of a process, in bytes, as /proc/PID/status has it."""
    with open(f"/proc/{pid}/status") as text:
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


def processes():
    """The processes of this job that have a Python of DGL's in them: role, and what they take."""
    token = b"DGL_TOOLS_TOKEN=" + os.environ["DGL_TOOLS_TOKEN"].encode()
    environs = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as environ:
            variables = environ.read().split(b"\0")
            if token in variables:
                environs[int(pid)] = variables
    for pid, variables in environs.items():
        with open(f"/proc/{pid}/stat") as stat:
            parent = int(stat.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{pid}/cmdline", "rb") as command:
            if b"resource_tracker" in command.read():
                continue
        role = "server" if b"DGL_ROLE=server" in variables else "sampler" if parent in environs else "trainer"
        yield role, status(pid)


def tell(when):
    """Alone of the first trainer; the others wait."""
    distributed.barrier()
    if distributed.get_rank() == 0:
        for role, found in processes():
            print("took", json.dumps({"when": when, "role": role, "dgl": dgl.__version__, "torch": torch.__version__, **found}), flush=True)
    distributed.barrier()


def run(args):
    import train  # not on top: a server that is measured has not imported it

    train.initialize(args.ip_config, None)
    distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph("g", part_config=args.config)
    tell("ready")
    options = argparse.Namespace(num_epochs=1, batch_size=args.batch_size, lr=0.01, checkpoint=None, fail_rank=None)
    train.train(graph, options)
    tell("trained")


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
    maker.add_argument("--parts", type=int, default=2)
    maker.add_argument("--labels", type=int, default=0, help="so many nodes are to be trained on, with labels")
    server = commands.add_parser("serve")
    server.add_argument("--config", required=True)
    server.add_argument("--formats", default="csc")
    server.add_argument("--graphbolt", action="store_true")
    runner = commands.add_parser("run")
    runner.add_argument("--ip-config", required=True)
    runner.add_argument("--config", required=True)
    runner.add_argument("--batch-size", type=int, default=1000)
    args = parser.parse_args()
    {"make": make, "serve": serve, "run": run}[args.command](args)


if __name__ == "__main__":
    main()
