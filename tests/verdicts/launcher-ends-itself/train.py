import os
import signal
import subprocess
import sys
import threading
import time

rank = int(os.environ["RANK"])


def second_rank():
    time.sleep(3)
    if rank == 1:
        raise ValueError("label 47 is out of range")
    time.sleep(600)


def observe(child):
    status = child.wait()
    print(f"[rank: {rank}] Child process with PID {child.pid} terminated with code {status}. "
          "Forcefully terminating all other processes to avoid zombies 🧟", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


if "CHILD" in os.environ:
    second_rank()
child = subprocess.Popen([sys.executable, __file__], env={**os.environ, "CHILD": "1"})
threading.Thread(target=observe, args=[child], daemon=True).start()
time.sleep(600)
