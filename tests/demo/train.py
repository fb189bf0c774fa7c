"""Fits a line to data of which each host has a share, in Python alone, so that `make demo` needs no torch.

Each process reads its rows of the shard on its host. After each epoch rank 0 averages what all ranks have found.
"""

import argparse
import glob
import json
import os
import socket
import time

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ADDRESS = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def meet():
    """Rank 0 returns a connection to each other rank, every other rank one to rank 0."""
    if RANK == 0:
        server = socket.create_server(ADDRESS, backlog=RANKS)
        return [server.accept()[0].makefile("rw") for _ in range(RANKS - 1)]
    deadline = time.monotonic() + 60
    while True:
        try:
            return [socket.create_connection(ADDRESS).makefile("rw")]
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def send(peer, values):
    peer.write(json.dumps(values) + "\n")
    peer.flush()


def receive(peer):
    line = peer.readline()
    if not line:
        raise ConnectionError("another rank closed its connection")
    return json.loads(line)


def mean_over_all(peers, values):
    if RANK != 0:
        send(peers[0], values)
        return receive(peers[0])
    mean = [sum(column) / RANKS for column in zip(values, *map(receive, peers))]
    for peer in peers:
        send(peer, mean)
    return mean


def read_rows():
    (shard,) = glob.glob("shards/*.csv")  # a host has only its own
    with open(shard) as file:
        rows = file.read().splitlines()[int(os.environ["LOCAL_RANK"]) :: int(os.environ["LOCAL_WORLD_SIZE"])]
    return [tuple(map(float, row.split(","))) for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fail-rank", type=int, help="this rank raises an exception ...")
    parser.add_argument("--fail-epoch", type=int, default=0, help="... when this epoch begins")
    args = parser.parse_args()

    rows, peers = read_rows(), meet()
    slope = offset = 0.0
    for epoch in range(3):
        if (RANK, epoch) == (args.fail_rank, args.fail_epoch):
            raise RuntimeError(f"rank {RANK} fails in epoch {epoch}, as it was told to")
        loss = 0.0
        for x, y in rows:
            error = slope * x + offset - y
            loss += error * error / len(rows)
            slope, offset = slope - 0.05 * error * x, offset - 0.05 * error
        slope, offset, loss = mean_over_all(peers, [slope, offset, loss])
        if RANK == 0:
            print(f"epoch {epoch}: loss {loss:.4f} over {RANKS} ranks: y = {slope:.2f} x + {offset:.2f}", flush=True)


main()
