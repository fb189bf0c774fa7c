import os
import time

import torch.multiprocessing as mp


def train(number, host):
    time.sleep(1)
    if number == 1 and host == 1:
        raise AssertionError("the number of classes is 40, the labels go to 47")
    time.sleep(30)


if __name__ == "__main__":
    mp.spawn(train, args=(int(os.environ["RANK"]),), nprocs=2)
