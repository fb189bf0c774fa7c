#!/usr/bin/env python3
"""Trains as train.py does, until FAULT goes wrong in the trainer of rank FAULT_RANK when its second epoch begins.

  FAULT=sampler   the kernel's KILL takes one of its samplers
  FAULT=raise     it raises an exception that nobody catches, as most scripts do
  FAULT=barrier   it waits in a barrier of DGL's to which no other trainer comes
  FAULT=slow      it prepares each batch for longer than the others, who take 20 ms, by SLOWER times that; nothing fails
"""

import multiprocessing
import os
import signal
import time

import train
from torch import distributed


def go_wrong(graph):
    fault = os.environ["FAULT"]
    if fault == "sampler":
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    elif fault == "raise":
        raise ValueError(f"loss is not a number in trainer {distributed.get_rank()}")
    elif fault == "barrier":
        graph.barrier()


def with_fault(mean_over_all, graph, calls):
    """The mean over all trainers is taken twice in the first epoch: before it and at its end."""

    def mean(value):
        result = mean_over_all(value)
        calls.append(value)
        if len(calls) == 2 and distributed.get_rank() == int(os.environ["FAULT_RANK"]):
            go_wrong(graph)
        return result

    return mean


def prepare(batch):
    is_slow = distributed.get_rank() == int(os.environ["FAULT_RANK"])
    time.sleep(0.02 * (1 + is_slow * float(os.environ["SLOWER"])))
    return batch


class Prepared:
    """Batches that are prepared one after the other."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return map(prepare, self.loader)


def main():
    args = train.parse_args()
    train.initialize(args.ip_config, args.net_type)
    distributed.init_process_group("gloo")
    graph = train.dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    if os.environ["FAULT"] == "slow":
        batches = train.batches
        train.batches = lambda *words: Prepared(batches(*words))
    else:
        train.mean_over_all = with_fault(train.mean_over_all, graph, [])
    train.train(graph, args)


if __name__ == "__main__":  # samplers are spawned, and import this file again
    main()
