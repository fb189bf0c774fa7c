import multiprocessing
import os
import time


def sample(batches):
    while True:
        batches.put(b"x" * 1000)
        time.sleep(0.1)


if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    manager = multiprocessing.Manager()
    batches = manager.Queue()
    for number in range(2):
        multiprocessing.Process(target=sample, args=(batches,)).start()
    for step in range(30):
        batches.get()
        if rank == 1 and step == 12:
            manager.shutdown()
            raise ValueError("step 12: expected 3 features, got 5")
        time.sleep(0.1)
    time.sleep(30)
