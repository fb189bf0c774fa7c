#!/usr/bin/env python3
"""Writes a small graph in chunks to ./chunked by DGL's own chunk_graph.py, whose directory is in PYTHONPATH: chunks.py NUM_CHUNKS"""

import os
import sys
import tempfile

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl
import numpy
import torch
from chunk_graph import chunk_graph

NODES, EDGES, CLASSES = 400, 3000, 2

rng = numpy.random.default_rng(0)
label = rng.integers(0, CLASSES, NODES)
columns = {
    "feat": rng.normal(size=(NODES, 8)).astype("float32") + 3 * numpy.eye(8, dtype="float32")[label],
    "label": label,
    "train_mask": numpy.ones(NODES, dtype="int8"),
}
graph = dgl.graph(tuple(torch.from_numpy(rng.integers(0, NODES, (2, EDGES)))), num_nodes=NODES)
with tempfile.TemporaryDirectory() as directory:
    files = {name: os.path.join(folder, f"{name}.npy") for name in columns}
    for name, column in columns.items():
        numpy.save(files[name], column)
    chunk_graph(graph, "g", {"_N": files}, {"_E": {}}, int(sys.argv[1]), "chunked")
