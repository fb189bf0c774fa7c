"""A graph of 2,000 nodes in two parts or more, as GLT writes it: graph.py FOLDER [PARTS]. The training
and test nodes of each part lie in its directory, as many in each, and the labels of all nodes beside
them."""

import sys

import torch
from graphlearn_torch.partition import RandomPartitioner

NODES, CLASSES, DEGREE = 2000, 4, 10
folder, *given = sys.argv[1:]
PARTS = int(given[0]) if given else 2
torch.manual_seed(1)
labels = torch.arange(NODES) % CLASSES
source = torch.arange(NODES).repeat_interleave(DEGREE)
# four of five neighbours are of the node's own class
near = torch.randint(NODES // CLASSES, source.shape) * CLASSES + labels[source]
anywhere = torch.randint(NODES, source.shape)
target = torch.where(torch.rand(source.shape) < 0.8, near, anywhere)
features = torch.nn.functional.one_hot(labels, 16) + torch.randn(NODES, 16)
RandomPartitioner(folder, PARTS, NODES, torch.stack([source, target]), features).partition()
torch.save(labels, f"{folder}/labels.pt")
parts = torch.load(f"{folder}/node_pb.pt")[torch.arange(NODES)]
for part in range(PARTS):
    nodes = torch.nonzero(parts == part).flatten()
    nodes = nodes[torch.randperm(len(nodes))]
    torch.save(nodes[: 1280 // PARTS].clone(), f"{folder}/part{part}/train.pt")
    torch.save(nodes[1280 // PARTS : 1792 // PARTS].clone(), f"{folder}/part{part}/test.pt")
