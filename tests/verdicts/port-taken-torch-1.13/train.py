import os

import torch
import torch.distributed as dist

os.environ["MASTER_ADDR"] = "10.0.0.1"
os.environ["MASTER_PORT"] = "29500"


def main():
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    dist.all_reduce(torch.ones(1))


main()
