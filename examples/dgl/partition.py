#!/usr/bin/env python3
"""Makes a random graph that a GNN can learn something from, and partitions it with DGL.

The nodes belong to communities, and all nodes of a community have the same label. Most edges stay inside a community. The
features of a node show its label only with much noise; the mean of its neighbours' features shows it more clearly, which
GraphSAGE can learn. There are many more communities than labels, so that every partition has nodes of every label.
It runs with DGL 0.5 to 2.1.
"""

import argparse
import contextlib
import os
import sys

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl
import torch

CLASSES = 4
FEATURES = 16
COMMUNITY = 50  # nodes
EDGES_OF_A_NODE = 8
INSIDE = 0.8  # the share of the edges that stay in the community
NOISE = 1.0  # the standard deviation; the signal is 1


def community_graph(num_nodes):
    community = torch.arange(num_nodes) // COMMUNITY
    label = torch.randint(CLASSES, (num_nodes // COMMUNITY + 1,))[community]

    src = torch.arange(num_nodes).repeat_interleave(EDGES_OF_A_NODE)
    anywhere = torch.randint(num_nodes, src.shape)
    nearby = (community[src] * COMMUNITY + torch.randint(COMMUNITY, src.shape)).clamp(max=num_nodes - 1)
    dst = torch.where(torch.rand(src.shape) < INSIDE, nearby, anywhere)

    graph = dgl.graph((torch.cat([src, dst]), torch.cat([dst, src])), num_nodes=num_nodes)
    feat = NOISE * torch.randn(num_nodes, FEATURES)
    feat[torch.arange(num_nodes), label] += 1
    role = torch.rand(num_nodes)
    graph.ndata["feat"] = feat
    graph.ndata["label"] = label
    graph.ndata["train_mask"] = role < 0.6
    graph.ndata["val_mask"] = (role >= 0.6) & (role < 0.8)
    graph.ndata["test_mask"] = role >= 0.8
    return graph


def shop_graph(num_users):
    """A graph with two types of nodes and of edges, to test that it can be loaded."""
    num_items = num_users // 2
    friends = torch.randint(num_users, (2, 4 * num_users))
    bought = torch.randint(num_users, (4 * num_users,)), torch.randint(num_items, (4 * num_users,))
    graph = dgl.heterograph(
        {("user", "follows", "user"): tuple(friends), ("user", "buys", "item"): bought},
        num_nodes_dict={"user": num_users, "item": num_items},
    )
    for kind in graph.ntypes:
        graph.nodes[kind].data["feat"] = torch.randn(graph.num_nodes(kind), FEATURES)
    return graph


def uneven_assignment(graph, num_parts, *_, **__):
    """In place of METIS: seven of ten nodes belong to part 0, regardless of their neighbours."""
    part = torch.randint(num_parts, (graph.num_nodes(),))
    return torch.where(torch.rand(part.shape) < 0.7, torch.zeros_like(part), part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--num-parts", type=int, required=True)
    parser.add_argument("--graph-name", default="g")
    parser.add_argument("--num-nodes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--types", type=int, choices=[1, 2], default=1, help="the number of node types; 2 from DGL 0.6 on")
    parser.add_argument("--graphbolt", action="store_true", help="write the graph in graphbolt's form; from DGL 2.1 on")
    parser.add_argument("--uneven", action="store_true", help="give part 0 most of the nodes; only DGL 1.0")
    parser.add_argument("--no-reshuffle", action="store_true", help="keep the ids and write .npy maps; up to DGL 0.9")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    dgl.seed(args.seed)  # METIS and DGL have random generators of their own
    graph = community_graph(args.num_nodes) if args.types == 1 else shop_graph(args.num_nodes)
    options = {"reshuffle": False} if args.no_reshuffle else {"use_graphbolt": True} if args.graphbolt else {}
    if args.uneven:
        dgl.distributed.partition.metis_partition_assignment = uneven_assignment
    with contextlib.redirect_stdout(sys.stderr):  # DGL prints 20 lines of its own
        dgl.distributed.partition_graph(graph, args.graph_name, args.num_parts, args.out, **options)
    config = os.path.join(args.out, args.graph_name + ".json")
    print(f"{config}: {graph.num_nodes()} nodes, {graph.num_edges()} edges, {args.num_parts} parts")


if __name__ == "__main__":
    main()
