"""Rank 0 waits for a program that it has started; the others wait in a barrier."""

import subprocess
import time

from ranks import RANK, process_group, say


def compile_kernels():
    subprocess.run(["sleep", "100000"], check=True)


def main(dist):
    say("started")
    dist.barrier()
    if RANK == 0:
        compile_kernels()
    dist.barrier()
    say("ready")
    time.sleep(100_000)


main(process_group())
