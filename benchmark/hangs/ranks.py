"""What all of these programs share: who a process is, and how it reaches the others.

The rank comes from torchrun, mpirun or srun. MASTER_ADDR and MASTER_PORT are needed on several hosts only.
"""

import datetime
import os
import signal
import socket
import time

RANK = int(next(os.environ[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID") if name in os.environ))
WORLD = int(next(os.environ[name] for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") if name in os.environ))
MASTER = os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
PORT = int(os.environ.setdefault("MASTER_PORT", "29571"))
os.environ.update(RANK=str(RANK), WORLD_SIZE=str(WORLD))

SECONDS = os.environ.get("HANG_SECONDS", "900")
signal.alarm(int(SECONDS))  # nothing stays behind that nobody ends


def say(text):
    print(f"rank {RANK}: {text}", flush=True)


def process_group():
    """torch's process group with gloo, which waits longer than the program lives."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=datetime.timedelta(hours=1))
    return dist


class Star:
    """Collectives without torch: rank 0 has a connection to each of the others."""

    def __init__(self):
        self.peers = []
        if RANK == 0:
            with socket.create_server(("", PORT + 1), backlog=WORLD) as server:
                self.peers = [server.accept()[0] for _ in range(WORLD - 1)]
        else:
            self.peers = [self.connect()]

    def connect(self):
        for _ in range(300):
            try:
                return socket.create_connection((MASTER, PORT + 1))
            except OSError:
                time.sleep(0.1)
        raise TimeoutError("rank 0 does not listen")

    def barrier(self):
        if RANK == 0:
            for peer in self.peers:
                peer.recv(1)
            for peer in self.peers:
                peer.send(b".")
        else:
            self.peers[0].send(b".")
            self.peers[0].recv(1)
