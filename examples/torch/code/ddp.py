"""Fits a line to the rows of data.csv, with torch's DDP: each rank reads its own rows."""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--out", default="model.pt")
arguments = parser.parse_args()

cuda = torch.cuda.is_available()
distributed.init_process_group("nccl" if cuda else "gloo")
# a process may see all GPUs of its host, or only its own
device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}" if cuda else "cpu"
rank, ranks = distributed.get_rank(), distributed.get_world_size()
with open("data.csv") as file:
    lines = file.read().splitlines()[rank::ranks]
rows = torch.tensor([[float(number) for number in line.split(",")] for line in lines]).to(device)

model = DistributedDataParallel(nn.Linear(1, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(arguments.epochs):
    for batch in rows.split(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:, :1]), batch[:, 1:])
        loss.backward()
        optimizer.step()
    if rank == 0:
        # renamed when it is complete, so that a job that is ended leaves the last whole model
        torch.save(model.module.state_dict(), arguments.out + ".part")
        os.replace(arguments.out + ".part", arguments.out)
        print(f"epoch {epoch}: loss {loss.item():.4f} on {ranks} ranks", flush=True)
if rank == 0:
    print(f"wrote {os.path.abspath(arguments.out)}")
