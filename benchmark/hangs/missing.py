"""Rank 3 has finished without an error before it joined; the others wait for it when they start."""

import sys

from ranks import RANK, process_group, say

say("started")
if RANK == 3:
    say("no GPU for this rank")
    sys.exit(0)
dist = process_group()
dist.barrier()
say("ready")
