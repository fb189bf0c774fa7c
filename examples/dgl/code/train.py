#!/usr/bin/env python3
"""Trains a small GraphSAGE on the partitions of a graph: a small script that uses every part of a DGL job.

Every process of a job runs it; the environment says which process it is (DGL_ROLE, DGL_SERVER_ID, RANK ...). Trainers may
be started directly or by torchrun. It prints the loss over all trainers before training and after each epoch, and fails if
the loss has not fallen. It runs with DGL 0.5 to 2.1, which moved and renamed some functions.
"""

import argparse
import os
import sys
import time
import traceback

os.environ.setdefault("DGLBACKEND", "pytorch")  # without it DGL writes ~/.dgl/config.json

import dgl
import torch
from dgl.nn.pytorch import SAGEConv
from torch import distributed, nn

HIDDEN = 16
FAN_OUT = [5, 5]


class GraphSage(nn.Module):
    def __init__(self, num_features, num_classes):
        super().__init__()
        self.inner = SAGEConv(num_features, HIDDEN, "mean")
        self.outer = SAGEConv(HIDDEN, num_classes, "mean")

    def forward(self, blocks, features):
        return self.outer(blocks[1], torch.relu(self.inner(blocks[0], features)))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ip-config", required=True, metavar="FILE")
    parser.add_argument("--part-config", required=True, metavar="FILE")
    parser.add_argument("--graph-name", default="g")
    parser.add_argument("--num-epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--out", metavar="MODEL", help="rank 0 saves the state_dict here")
    parser.add_argument("--checkpoint", metavar="FILE", help="each host saves one after each epoch; training continues from the newest")
    parser.add_argument("--fail-rank", type=int, metavar="R", help="this trainer exits with 1 ...")
    parser.add_argument("--fail-epoch", type=int, default=0, metavar="E", help="... when this epoch begins")
    parser.add_argument("--net-type", metavar="NAME", help="tensorpipe for servers that stay (DGL 0.9 to 1.1)")
    # torch.distributed.launch adds it, with an underscore up to torch 1.x and with a hyphen from 2.0 on.
    parser.add_argument("--local_rank", "--local-rank", help=argparse.SUPPRESS)
    return parser.parse_args()


def batches(graph, nodes, batch_size):
    """A loader of (input nodes, seeds, blocks). DGL_NUM_SAMPLER processes sample for it."""
    sampling = dgl.dataloading
    sampler = getattr(sampling, "NeighborSampler", None) or sampling.MultiLayerNeighborSampler  # from 0.8 / before
    loader = (
        getattr(dgl.distributed, "DistNodeDataLoader", None)  # from 2.0
        or getattr(sampling, "DistNodeDataLoader", None)  # from 0.8
        or sampling.NodeDataLoader
    )
    return loader(graph, nodes, sampler(FAN_OUT), batch_size=batch_size, shuffle=True, drop_last=False)


def over_all(value, op):
    """Reduces a number of each trainer to a single one."""
    tensor = torch.tensor(float(value))
    distributed.all_reduce(tensor, op)
    return tensor.item()


def mean_over_all(value):
    return over_all(value, distributed.ReduceOp.SUM) / distributed.get_world_size()


def newest_checkpoint(path):
    """The newest checkpoint of any host, on all trainers; None if no host has one."""
    saved = torch.load(path) if path and os.path.exists(path) else None
    epoch = saved["epoch"] if saved else -1
    newest = over_all(epoch, distributed.ReduceOp.MAX)
    if newest < 0:
        return None
    ranks = distributed.get_world_size()
    owner = over_all(distributed.get_rank() if epoch == newest else ranks, distributed.ReduceOp.MIN)
    shared = [saved]
    distributed.broadcast_object_list(shared, src=int(owner))
    return shared[0]


def save_checkpoint(path, saved):
    """One trainer of each host saves it, completely or not at all, because the host may fail meanwhile."""
    if path and os.environ.get("LOCAL_RANK", "0") == "0":
        torch.save(saved, path + ".new")
        os.replace(path + ".new", path)


def train(graph, args):
    """Returns the model, the loss of the first batch before training, and the mean loss of the last epoch."""
    rank = distributed.get_rank()  # not graph.rank(), which is DGL's own number
    nodes = dgl.distributed.node_split(graph.ndata["train_mask"], graph.get_partition_book(), force_even=True)
    # All trainers need the same number of batches: with one more, a trainer would wait for the others forever.
    nodes = nodes[: int(over_all(len(nodes), distributed.ReduceOp.MIN))]
    num_classes = int(over_all(graph.ndata["label"][nodes].max(), distributed.ReduceOp.MAX)) + 1

    loader = batches(graph, nodes, args.batch_size)
    model = nn.parallel.DistributedDataParallel(GraphSage(graph.ndata["feat"].shape[1], num_classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    begin_epoch, first, last = 0, None, None
    saved = newest_checkpoint(args.checkpoint)
    if saved:
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        begin_epoch, first, last = saved["epoch"] + 1, saved["first"], saved["last"]
        print(f"goes on with epoch {begin_epoch}", flush=True)
    for epoch in range(begin_epoch, args.num_epochs):
        if rank == args.fail_rank and epoch == args.fail_epoch:
            raise RuntimeError(f"rank {rank} fails in epoch {epoch}, as it was told to")
        begin = time.monotonic()
        losses = []
        for inputs, seeds, blocks in loader:
            scores = model(blocks, graph.ndata["feat"][inputs])
            loss = nn.functional.cross_entropy(scores, graph.ndata["label"][seeds].long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if first is None:
                first = mean_over_all(losses[0])
                print(f"before training loss {first:.4f}", flush=True)
        last = mean_over_all(sum(losses) / len(losses))
        print(f"epoch {epoch} loss {last:.4f} seconds {time.monotonic() - begin:.1f}", flush=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        save_checkpoint(args.checkpoint, {"epoch": epoch, "first": first, "last": last, **state})
    return model.module, first, last


def initialize(ip_config, net_type):
    numbers = {"net_type": net_type} if net_type else {}
    if dgl.__version__.startswith(("0.5.", "0.6.0")):  # later versions read them from the environment
        numbers = {"num_servers": int(os.environ["DGL_NUM_SERVER"]), "num_workers": int(os.environ["DGL_NUM_SAMPLER"])}
    dgl.distributed.initialize(ip_config, **numbers)


def main():
    args = parse_args()
    initialize(args.ip_config, args.net_type)  # in servers and samplers this never returns
    distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    model, first, last = train(graph, args)
    fell = last < first
    if distributed.get_rank() == 0:
        if args.out:
            torch.save(model.state_dict(), args.out)
        print(f"loss {'fell' if fell else 'did not fall'} from {first:.4f} to {last:.4f}", flush=True)
    sys.exit(0 if fell else 1)


if __name__ == "__main__":  # samplers are spawned and import this file again
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.stdout.flush()
        # An exception alone would not end the process: as it exits, DGL waits for all other clients to exit, and they wait
        # for this one, so that the job would never fail.
        os._exit(1)
