#!/usr/bin/env python3
"""Tries what dgl-stacks concludes from connections: a job of torch over gloo on hosts of host-lab, in which one rank does not come.

Usage: trials.py OUT [--hosts N] [--per-host N] [--trials N] [--seed N] [--delay MS] [--python PYTHON]

Each trial becomes a line of OUT: the operation, the fault, who it was, and for each rank the frames of its main thread and its
connections to the others, as common/verdict/tests/silence.rs reads them."""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LAB = os.path.join(ROOT, "tools/host-lab/host-lab")
OPERATIONS = ["all_reduce", "barrier", "all_to_all", "all_gather", "neighbours", "pipeline", "broadcast", "reduce"]
FAULTS = ["sleep", "spin", "stop", "loader", "stop_inside"]
# nothing goes wrong: all sleep for long before an operation, or go on with theirs
HEALTHY = ["all_sleep", "none"]

TIMES_AND_BYTES = ["since_sent_ms", "since_received_ms", "since_acknowledged_ms", "round_trip_us", "unacknowledged_bytes", "unread_bytes"]


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--per-host", type=int, default=1)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0, help="of host 2, in milliseconds")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--python", default=sys.executable)
    return parser.parse_args()


def wait_for(path, seconds=120):
    begun = time.monotonic()
    while not os.path.exists(path):
        if time.monotonic() - begun > seconds:
            raise TimeoutError(path)
        time.sleep(0.05)


def processes(stacks):
    """The ranks without their children, with what their connections tell."""
    stacks = [one for one in stacks if "rank" in one and "parent" not in one]
    rank_of = {(link["local"], link["peer"]): one["rank"] for one in stacks for link in one["connections"]}
    numbers = {}

    def links(stack):
        for link in stack["connections"]:
            ends = (link["local"], link["peer"])
            if ends[::-1] in rank_of:
                number = numbers.setdefault(tuple(sorted(ends)), len(numbers))
                yield [rank_of[ends[::-1]], number] + [link.get(name) for name in TIMES_AND_BYTES]

    def frames(stack):
        return next((thread["frames"] for thread in stack["threads"] if thread.get("name") == "MainThread"), None)

    return [{"rank": one["rank"], "host": one["host"], "frames": frames(one), "links": list(links(one))} for one in stacks]


class Job:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.trials = os.path.join(work, "trials")
        os.mkdir(self.trials)
        self.size = options.hosts * options.per_host
        self.number = 0
        config = "".join(f"10.77.0.{k + 1}\n" for k in range(options.hosts))
        with open(os.path.join(work, "ip_config.txt"), "w") as file:
            file.write(config)
        command = f"""cd {work} && ipconf-check ip_config.txt | host-probe --workspace /srv/job --python {options.python} |
            dgl-env --role worker --num-workers {options.per_host} --num-omp-threads 1 --env TRIALS={self.trials} -- \
            {options.python} {ROOT}/tests/silence/ranks.py | dgl-spawn --job silence --host-timeout 60s"""
        self.process = subprocess.Popen([LAB, "exec", "1", "sh", "-c", command], stdout=open(work + "/run.jsonl", "w"),
                                        stderr=open(work + "/run.err", "w"))
        for rank in range(self.size):
            wait_for(os.path.join(self.trials, f"ready-{rank}"), 300)

    def stacks(self):
        command = f"cd {self.work} && ipconf-check ip_config.txt | dgl-stacks --job silence --connections --format jsonl"
        text = subprocess.run([LAB, "exec", "1", "sh", "-c", command], stdout=subprocess.PIPE, check=False).stdout
        records = [json.loads(line) for line in text.splitlines()]
        return [one for one in records if one["type"] == "stack"]

    def run(self, trial, wait_s):
        number, self.number = self.number, self.number + 1
        path = lambda name: os.path.join(self.trials, name)
        with open(path("new"), "w") as file:
            json.dump(trial, file)
        os.rename(path("new"), path(f"trial-{number}.json"))
        wait_for(path(f"faulty-{number}"))
        time.sleep(wait_s)
        stacks = self.stacks()
        open(path(f"release-{number}"), "w").close()
        if trial["fault"].startswith("stop"):
            host = trial["rank"] // self.options.per_host + 1
            with open(path(f"faulty-{number}")) as file:
                pid = file.read()
            subprocess.run([LAB, "exec", "1", "ssh", f"h{host}", f"kill -CONT {pid}"], check=True)
        for rank in range(self.size):
            wait_for(path(f"done-{number}-{rank}"))
        return stacks

    def end(self):
        with open(os.path.join(self.trials, f"trial-{self.number}.json"), "w") as file:
            file.write('{"end": true}')
        self.process.wait(60)


def main():
    chosen = options()
    chance = random.Random(chosen.seed)
    work = tempfile.mkdtemp(prefix="dgl-tools-silence-", dir="/var/tmp")
    os.environ["LAB"] = os.path.join(work, "lab")
    os.environ["PATH"] = os.environ.get("BIN", os.path.join(ROOT, "target/debug")) + ":" + os.environ["PATH"]
    delayer = None
    try:
        subprocess.run([LAB, "up", str(chosen.hosts), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        if chosen.delay:
            delay = os.path.join(ROOT, "tests/silence/delay.py")
            subprocess.run([LAB, "exec", "2", "python3", delay, "--whole", "eth0"], check=True)
            with open(os.environ["LAB"] + "/pid") as file:
                switch = file.read().strip()
            delayer = subprocess.Popen(["nsenter", "-t", switch, "-n", "python3", delay, "p2", str(chosen.delay)])
            time.sleep(2)
        job = Job(chosen, work)
        for _ in range(chosen.trials):
            trial = {
                "operation": chance.choice(chosen.operations.split(",")),
                "fault": chance.choice(chosen.faults.split(",")),
                "rank": chance.randrange(job.size),
                "elements": chance.choice([1, 1000, 300_000]),
                "steps": chance.randrange(5, 15),
                "step_s": chance.choice([0.02, 0.05]),
            }
            if trial["fault"] in HEALTHY:
                trial["rank"] = None
            if trial["fault"] == "none":
                trial["steps"] = 200
            stacks = job.run(trial, chance.uniform(0.5, 3))
            load = os.getloadavg()[0]
            row = {"size": job.size, "delay_ms": chosen.delay, "load": load, **trial, "processes": processes(stacks)}
            with open(chosen.out, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(trial, len(stacks), flush=True)
        job.end()
    except BaseException:
        subprocess.run(["tail", "-n", "5", work + "/run.err"], check=False)
        raise
    finally:
        if delayer:
            delayer.terminate()
        subprocess.run([LAB, "down"], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(work, ignore_errors=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
