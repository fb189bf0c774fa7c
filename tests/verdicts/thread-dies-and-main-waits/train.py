import queue
import threading

import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
batches = queue.Queue()


def prefetch():
    for number in range(3):
        if rank == 1 and number == 2:
            raise KeyError(f"batch {number} has no labels")
        batches.put(number)


threading.Thread(target=prefetch, name="prefetch").start()
for number in range(3):
    batches.get()
    dist.barrier()
