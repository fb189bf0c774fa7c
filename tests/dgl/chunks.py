#!/usr/bin/env python3
"""Writes a small graph in 4 chunks, as DGL's chunk_graph.py does, and an assignment of its nodes: chunks.py FOLDER

chunked/ has the chunks, whose metadata names some files absolutely; given.npy sends each node to a partition by its label."""

import json
import os
import sys

import numpy

NODES, EDGES, CHUNKS, CLASSES = 400, 3000, 4, 2

os.chdir(sys.argv[1])
rng = numpy.random.default_rng(0)
label = rng.integers(0, CLASSES, NODES)
columns = {
    "feat": rng.normal(size=(NODES, 8)).astype("float32") + 3 * numpy.eye(8, dtype="float32")[label],
    "label": label,
    "train_mask": numpy.ones(NODES, dtype="int8"),
}
os.makedirs("chunked/edges")
os.makedirs("chunked/feats")


def chunked(array, path, save):
    """The paths of the files of an array; `path` has the number of a chunk in it."""
    paths = [path.format(number) for number in range(CHUNKS)]
    for file, chunk in zip(paths, numpy.array_split(array, CHUNKS)):
        save(os.path.join("chunked", file), chunk)
    return paths


edges = chunked(rng.integers(0, NODES, (EDGES, 2)), "edges/{}.csv", lambda path, chunk: numpy.savetxt(path, chunk, fmt="%d"))
features = {
    name: [os.path.abspath(f"chunked/{path}") for path in chunked(column, f"feats/{name}-{{}}.npy", numpy.save)]
    for name, column in columns.items()
}
metadata = {
    "graph_name": "g",
    "node_type": ["_N"],
    "num_nodes_per_chunk": [[NODES // CHUNKS] * CHUNKS],
    "edge_type": ["_N:_E:_N"],
    "num_edges_per_chunk": [[EDGES // CHUNKS] * CHUNKS],
    "edges": {"_N:_E:_N": {"format": {"name": "csv", "delimiter": " "}, "data": edges}},
    "node_data": {"_N": {name: {"format": {"name": "numpy"}, "data": files} for name, files in features.items()}},
    "edge_data": {},
}
with open("chunked/metadata.json", "w") as file:
    json.dump(metadata, file)
numpy.save("given.npy", label.astype("int32"))
