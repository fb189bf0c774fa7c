import multiprocessing
import os
import time


def split(number):
    if number == 5 and os.environ["RANK"] == "1":
        raise KeyError("train_mask")
    return number


if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(sum(pool.map(split, range(8))))
    time.sleep(30)
