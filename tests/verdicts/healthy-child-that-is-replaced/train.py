import multiprocessing
import os
import time


def sample(attempt):
    time.sleep(0.3)
    if attempt == 0:
        raise MemoryError("batch of 4096 seeds")
    print("sampler: 512 batches")


if __name__ == "__main__":
    for attempt in range(2):
        process = multiprocessing.Process(target=sample, args=(attempt,), name=f"sampler-{attempt}")
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        print("rank", os.environ["RANK"], "starts its sampler again with half the batch")
    print("rank", os.environ["RANK"], "is done")
