"""Fits a line to the rows of data.csv, with torch's DDP: each rank reads its own rows."""

import argparse
import os

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--out", default="model.pt")
parser.add_argument("--checkpoint", help="a file of rank 0: continue from it, and write it after each epoch")
arguments = parser.parse_args()

cuda = torch.cuda.is_available()
distributed.init_process_group("nccl" if cuda else "gloo")
# a process may see all GPUs of its host, or only its own
device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}" if cuda else "cpu"
rank, ranks = distributed.get_rank(), distributed.get_world_size()
with open("data.csv") as file:
    lines = file.read().splitlines()
# as many for each rank: with one batch more, a rank would wait for the others forever
lines = lines[: len(lines) // ranks * ranks][rank::ranks]
rows = torch.tensor([[float(number) for number in line.split(",")] for line in lines]).to(device)



def save(content, path):
    # renamed when it is complete, so that a job that is ended leaves the last whole file
    torch.save(content, path + ".part")
    os.replace(path + ".part", path)


# all ranks must continue from the same state: rank 0 reads it, DDP sends the model to the others, and the epoch is sent here
module, begin = nn.Linear(1, 1), [0]
if arguments.checkpoint and rank == 0 and os.path.exists(arguments.checkpoint):
    saved = torch.load(arguments.checkpoint, map_location="cpu")
    module.load_state_dict(saved["model"])
    begin = [saved["epoch"] + 1]
distributed.broadcast_object_list(begin, device=torch.device(device))
model = DistributedDataParallel(module.to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(begin[0], arguments.epochs):
    for batch in rows.split(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch[:, :1]), batch[:, 1:])
        loss.backward()
        optimizer.step()
    if rank == 0:
        save(model.module.state_dict(), arguments.out)
        if arguments.checkpoint:
            save({"epoch": epoch, "model": model.module.state_dict()}, arguments.checkpoint)
        print(f"epoch {epoch}: loss {loss.item():.4f} on {ranks} ranks", flush=True)
if rank == 0:
    print(f"wrote {os.path.abspath(arguments.out)}")
