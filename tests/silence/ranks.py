#!/usr/bin/env python3
"""A rank of torch.distributed over gloo that goes through the trials of trials.py, one after the other.

Each trial is a file trial-N.json in the directory TRIALS: an operation that all ranks repeat, and what one of them does instead of the
last one. That rank writes faulty-N then, and goes on when release-N is there, as all ranks do with the next trial.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time

import torch
from torch import distributed

FOLDER = os.environ["TRIALS"]


def path(name):
    return os.path.join(FOLDER, name)


def wait_for(name):
    while not os.path.exists(path(name)):
        time.sleep(0.02)


def write(name, text):
    with open(path(f"{name}.{os.getpid()}"), "w") as file:
        file.write(text)
    os.rename(path(f"{name}.{os.getpid()}"), path(name))


def repeat(operation, elements, rank, size):
    """Does the operation once."""
    tensor = torch.ones(elements)
    if operation == "all_reduce":
        distributed.all_reduce(tensor)
    elif operation == "barrier":
        distributed.barrier()
    elif operation == "all_to_all":
        tensor = torch.ones(elements * size)
        distributed.all_to_all_single(torch.empty(elements * size), tensor)
    elif operation == "all_gather":
        distributed.all_gather([torch.empty(elements) for _ in range(size)], tensor)
    elif operation == "broadcast":
        distributed.broadcast(tensor, 0)
    elif operation == "reduce":
        distributed.reduce(tensor, 0)
    elif operation == "neighbours":
        sent = distributed.isend(tensor, (rank + 1) % size)
        distributed.recv(torch.empty(elements), (rank - 1) % size)
        sent.wait()
    elif operation == "pipeline":
        if rank > 0:
            distributed.recv(torch.empty(elements), rank - 1)
        if rank + 1 < size:
            distributed.send(tensor, rank + 1)
    else:
        sys.exit(f"no operation {operation}")


def load(queue, name):
    wait_for(name)
    queue.put(None)


def go_wrong(fault, number):
    released = f"release-{number}"
    if fault == "stop":
        write(f"faulty-{number}", str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    write(f"faulty-{number}", str(os.getpid()))
    if fault in ("sleep", "all_sleep"):
        wait_for(released)
    elif fault == "spin":
        while not os.path.exists(path(released)):
            sum(range(10000))
    elif fault == "loader":
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=load, args=(queue, released))
        child.start()
        queue.get()
        child.join()
    elif fault == "stop_inside":
        # in the middle of what comes next
        threading.Timer(0.004, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
    else:
        sys.exit(f"no fault {fault}")


def run(trial, number, rank, size):
    # one more, for what stops in the middle of the last one
    for step in range(trial["steps"] + 1):
        # each has a little else to do, and not all the same
        time.sleep(trial["step_s"] * (0.8 + 0.4 * ((rank * 7 + step * 3) % 10) / 10))
        if step + 1 == trial["steps"] and trial["fault"] == "other":
            if rank == trial["rank"]:
                write(f"faulty-{number}", str(os.getpid()))
            repeat("barrier" if rank == trial["rank"] else trial["operation"], trial["elements"], rank, size)
            continue
        if step == 0 and trial["fault"] == "none" and rank == 0:
            write(f"faulty-{number}", "")
        if step + 1 == trial["steps"] and trial["fault"] != "none" and trial["rank"] in (rank, None):
            go_wrong(trial["fault"], number)
        repeat(trial["operation"], trial["elements"], rank, size)


def main():
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    distributed.all_reduce(torch.ones(1))
    write(f"ready-{rank}", "")
    number = 0
    while True:
        wait_for(f"trial-{number}.json")
        with open(path(f"trial-{number}.json")) as file:
            trial = json.load(file)
        if trial.get("end"):
            break
        try:
            run(trial, number, rank, size)
        except RuntimeError as error:
            # what a stopped or cut host does to gloo is not what is tried here
            print(error, flush=True)
            time.sleep(3600)
        write(f"done-{number}-{rank}", "")
        number += 1


main()
