"""Makes the tables of a small graph, for GraphStorm's construct_graph: graph.py FOLDER

The items have names of the user's own, which come back in the end only if nodes are mapped right."""

import json
import os
import sys

import numpy
import pandas

ITEMS, LINKS, CLASSES = 400, 3000, 3

os.chdir(sys.argv[1])
rng = numpy.random.default_rng(0)
label = rng.integers(0, CLASSES, ITEMS)
feat = rng.normal(size=(ITEMS, 8)).astype("float32") + 3 * numpy.eye(8, dtype="float32")[label]
name = numpy.array([f"item-{number}" for number in range(ITEMS)])
pandas.DataFrame({"id": name, "feat": list(feat), "label": label}).to_parquet("items.parquet")
ends = name[rng.integers(0, ITEMS, (2, LINKS))]
pandas.DataFrame({"src": ends[0], "dst": ends[1]}).to_parquet("links.parquet")

labels = {
    "label_col": "label",
    "task_type": "classification",
    "split_pct": [0.8, 0.1, 0.1],
    "label_stats_type": "frequency_cnt",
}
nodes = {
    "node_type": "item",
    "format": {"name": "parquet"},
    "files": "items.parquet",
    "node_id_col": "id",
    "features": [{"feature_col": "feat"}],
    "labels": [labels],
}
edges = {
    "relation": ["item", "links", "item"],
    "format": {"name": "parquet"},
    "files": "links.parquet",
    "source_id_col": "src",
    "dest_id_col": "dst",
}
with open("graph.json", "w") as file:
    json.dump({"version": "gconstruct-v0.1", "nodes": [nodes], "edges": [edges]}, file)
