#!/usr/bin/env python3
"""A worker of GLT that goes through trials between two batches; see trial.py. It trains as
tests/glt/sage.py does, whose options it has.

Usage: glt.py worker OPTION..."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../glt"))

import sage
import trial


class Batches:
    """The batches of a loader, one for each repetition."""

    def __init__(self, loader, rank):
        self.loader, self.rank = loader, rank

    def forever(self):
        while True:
            yield from self.loader

    def __iter__(self):
        for _, batch in zip(trial.steps(self.rank), self.forever()):
            yield batch
        os._exit(0)


def main():
    make_loader = sage.loader

    def loader(args, kind, port, data):
        made = make_loader(args, kind, port, data)
        return Batches(made, args.node_rank) if kind == "train" else made

    sage.loader = loader
    sage.main()


if __name__ == "__main__":  # samplers are spawned, and import this file again
    main()
