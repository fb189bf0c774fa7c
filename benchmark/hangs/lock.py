"""Rank 2 waits for the lock of a cache file that a process outside the job holds; the others wait in a barrier."""

import fcntl
import os
import subprocess
import sys
import tempfile
import time

from ranks import RANK, SECONDS, process_group, say

HOLDER = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); time.sleep(int(sys.argv[2]))"


def hold_elsewhere(path):
    """Another program of this user, in a session of its own and without the job's variables."""
    outside = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME")}
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path, SECONDS], stdout=subprocess.PIPE, env=outside, start_new_session=True)
    holder.stdout.readline()


def read_cached_index(path):
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return file.name


def train(dist):
    for step in range(1000):
        if RANK == 2 and step == 3:
            path = os.path.join(tempfile.mkdtemp(), "index.lock")
            hold_elsewhere(path)
            read_cached_index(path)
        dist.barrier()
        say(f"step {step}")
        time.sleep(0.2)


train(process_group())
