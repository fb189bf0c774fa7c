"""Makes dumps of torch's flight recorder: under torchrun with 3 ranks, `flight_recorder.py FOLDER CASE`.

Dumps of NCCL need GPUs. So those of gloo, which torch writes with the same code, are taken here. What gloo does not note is put into the
cases whose name begins with nccl: the ranks of each group, the states of operations, and those between two ranks.
"""

import datetime
import os
import pickle
import struct
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

folder, case = sys.argv[1:]
wait = 5 if case == "timed-out" else 60
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=wait))
rank = dist.get_rank()
ones = torch.ones(4)
groups = [dist.new_group([0, 1], group_desc="left"), dist.new_group([1, 2], group_desc="right")] if case == "nccl-chain" else []


def without_places(dump):
    """Torch's own bytes, but with other folders in the stacks."""
    for entry in pickle.loads(dump)["entries"]:
        for frame in entry["frames"]:
            file = frame["filename"]
            if "site-packages" in file:
                other = "/opt/venv/lib/python3.11/site-packages" + file.split("site-packages", 1)[1]
            else:
                other = "/srv/job/train.py"
            texts = [b"X" + struct.pack("<I", len(text)) + text.encode() for text in (file, other)]
            dump = dump.replace(*texts)
    return dump


def as_of_nccl(dump):
    """The same as NCCL's recorder notes it."""
    trace = pickle.loads(dump)
    ranks = {"0": ("default_pg", "[0, 1, 2]")}
    if case == "nccl-chain":
        ranks |= {"1": ("left", "[0, 1]"), "2": ("right", "[1, 2]")}
    member = lambda members: rank in map(int, members[1:-1].split(", "))
    trace["pg_config"] = {
        name: {"name": name, "desc": desc, "ranks": members} for name, (desc, members) in ranks.items() if member(members)
    }
    for entry in trace["entries"]:
        entry["profiling_name"] = entry["profiling_name"].replace("gloo:", "nccl:")
        is_first = entry["process_group"][0] == "0" and entry["collective_seq_id"] <= 3
        entry["state"] = "completed" if is_first else "started"
    if case == "nccl-pair" and rank == 2:
        last = trace["entries"][-1]
        trace["entries"].append(
            last | {"record_id": 3, "profiling_name": "nccl:recv 2<-0", "is_p2p": True, "p2p_seq_id": 1, "state": "scheduled"}
        )
    return pickle.dumps(trace, protocol=2)


def dump():
    trace = without_places(_dump_fr_trace())
    if case.startswith("nccl-"):
        trace = as_of_nccl(trace)
    if not (case == "missing" and rank == 1):
        with open(f"{folder}/nccl_trace_rank_{rank}", "wb") as file:
            file.write(trace)


def dump_and_end():
    """To gloo's recorder an operation that timed out looks as one that has completed, so this comes before, but for one case."""
    time.sleep(10)
    dump()
    time.sleep(5)
    os._exit(0)


def step():
    dist.all_reduce(ones)


def evaluate():
    time.sleep(60)


def train():
    for _ in range(3):
        step()
    if case in ("absent", "missing", "overwritten", "timed-out"):
        if rank == 1:
            evaluate()
        dist.broadcast(ones, 0)
        step()
    elif case == "different":
        if rank == 1:
            dist.all_gather([torch.ones(4) for _ in range(3)], ones)
        else:
            step()
    elif case == "sizes":
        dist.all_reduce(torch.ones(5) if rank == 1 else ones)
    elif case == "nccl-chain":
        # rank 0 waits for rank 1, and that for rank 2
        if rank < 2:
            dist.all_reduce(ones, group=groups[rank])
        evaluate()
    else:
        evaluate()


threading.Thread(target=dump_and_end).start()
try:
    train()
except RuntimeError as error:
    print(rank, error)
evaluate()
