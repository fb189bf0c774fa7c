"""The thread that prepares rank 2's batches has died, so rank 2 waits for its queue; the others wait in a barrier of their own."""

import queue
import threading
import time

from ranks import RANK, Star, say


def prepare(batches):
    for number in range(1000):
        if RANK == 2 and number == 5:
            return
        batches.put([number] * 8)


def train(star):
    batches = queue.Queue(maxsize=2)
    threading.Thread(target=prepare, args=(batches,), daemon=True).start()
    for step in range(1000):
        batches.get()
        star.barrier()
        say(f"step {step}")
        time.sleep(0.2)


train(Star())
