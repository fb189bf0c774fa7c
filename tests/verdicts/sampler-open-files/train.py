import os
import time

import torch
import torch.multiprocessing as mp


def sample(queue, seeds):
    for seed in seeds:
        queue.put((seed, torch.full((16,), float(seed))))
    time.sleep(600)


def main():
    rank = int(os.environ["RANK"])
    queue = mp.Queue()
    sampler = mp.Process(target=sample, args=(queue, range(70 if rank else 10)), daemon=True)
    sampler.start()
    time.sleep(2)
    blocks = []
    for step in range(200 if rank else 10):
        blocks.append(queue.get())
    print("rank", rank, "has sampled", len(blocks))
    if not rank:
        time.sleep(600)


main()
