#!/usr/bin/env python3
"""Loads one partition as a DGL server does: load.py PART_CONFIG NUM_PARTS [PART_ID], from the workspace; else partition RANK.

Shows whether what was copied to a host can be used there. DGL looks for some of the files relative to the working
directory, so that is part of the question.
"""

import json
import os
import sys

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: load.py PART_CONFIG NUM_PARTS [PART_ID]")
    part_config, num_parts = sys.argv[1], int(sys.argv[2])
    part_id = int(sys.argv[3] if len(sys.argv) == 4 else os.environ["RANK"])
    with open(part_config) as config:
        graphbolt = "part_graph_graphbolt" in json.load(config)[f"part-{part_id}"]
    options = {"use_graphbolt": True} if graphbolt else {}  # older ones do not know it
    graph, _, _, book, *_ = dgl.distributed.load_partition(part_config, part_id, **options)
    if book.num_partitions() != num_parts:
        sys.exit(f"{part_config}: {book.num_partitions()} parts, not {num_parts}")
    print(f"loaded part {part_id} of {type(graph).__name__}")


if __name__ == "__main__":
    main()
