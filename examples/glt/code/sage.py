"""Trains a small GraphSAGE with GLT: sage.py worker | server | client, with the options that GLT's
own examples have. A worker trains on its part and starts samplers of its own; servers hold the
parts and sample for clients that train."""

import argparse

import graphlearn_torch as glt
import torch
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

CPU = torch.device("cpu")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["worker", "server", "client"])
    parser.add_argument("--data", default="graph")
    parser.add_argument("--node_rank", type=int)
    parser.add_argument("--num_nodes", type=int)
    parser.add_argument("--num_server_nodes", type=int)
    parser.add_argument("--num_client_nodes", type=int)
    parser.add_argument("--master_addr")
    parser.add_argument("--training_pg_master_port", type=int)
    parser.add_argument("--server_addr", help="of a client: where the servers meet")
    parser.add_argument("--server_client_master_port", type=int)
    parser.add_argument("--train_loader_master_port", type=int)
    parser.add_argument("--test_loader_master_port", type=int)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", default="model.pt")
    return parser.parse_args()


def dataset(args):
    data = glt.distributed.DistDataset()
    data.load(
        args.data,
        args.node_rank,
        graph_mode="CPU",
        feature_with_gpu=False,
        whole_node_label_file=f"{args.data}/labels.pt",
    )
    return data


def loader(args, kind, port, data):
    """Batches of this rank's part, from samplers of its own, or of the server with its rank."""
    seeds = f"{args.data}/part{args.node_rank}/{kind}.pt"
    workers = {"num_workers": 1, "worker_devices": [CPU], "worker_concurrency": 2}
    if data is None:
        server = glt.distributed.RemoteDistSamplingWorkerOptions(
            server_rank=args.node_rank,
            master_addr=args.server_addr,
            master_port=port,
            buffer_size="16MB",
            prefetch_size=2,
            worker_key=kind,
            **workers,
        )
    else:
        seeds = torch.load(seeds)
        server = glt.distributed.MpDistSamplingWorkerOptions(
            master_addr=args.master_addr, master_port=port, channel_size="16MB", **workers
        )
    return glt.distributed.DistNeighborLoader(
        data,
        [5, 5],
        seeds,
        batch_size=64,
        shuffle=kind == "train",
        collect_features=True,
        to_device=CPU,
        worker_options=server,
    )


def train(args, world_size, data=None):
    torch.distributed.init_process_group(
        "gloo",
        rank=args.node_rank,
        world_size=world_size,
        init_method=f"tcp://{args.master_addr}:{args.training_pg_master_port}",
    )
    train_loader = loader(args, "train", args.train_loader_master_port, data)
    test_loader = loader(args, "test", args.test_loader_master_port, data)
    model = DistributedDataParallel(GraphSAGE(16, 32, num_layers=2, out_channels=4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(args.epochs):
        for batch in train_loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)
    torch.distributed.barrier()
    right = total = 0
    with torch.no_grad():
        for batch in test_loader:
            out = model.module(batch.x, batch.edge_index)[: batch.batch_size]
            right += int((out.argmax(1) == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
    print(f"accuracy {right / total:.3f} of {total}", flush=True)
    if args.node_rank == 0:
        torch.save(model.module.state_dict(), args.out)
    # samplers serve those of other ranks until all have their batches
    torch.distributed.barrier()
    train_loader.shutdown()
    test_loader.shutdown()


def main():
    args = options()
    glt.utils.seed_everything(args.node_rank)
    torch.set_num_threads(1)
    # GLT's own examples spawn their trainers, and what it makes in a process that was not spawned
    # cannot go to its samplers
    torch.multiprocessing.set_start_method("spawn")
    if args.role == "worker":
        glt.distributed.init_worker_group(args.num_nodes, args.node_rank)
        train(args, args.num_nodes, dataset(args))
    elif args.role == "server":
        glt.distributed.init_server(
            args.num_server_nodes,
            args.node_rank,
            dataset(args),
            args.master_addr,
            args.server_client_master_port,
            args.num_client_nodes,
        )
        glt.distributed.wait_and_shutdown_server()
    else:
        glt.distributed.init_client(
            args.num_server_nodes,
            args.num_client_nodes,
            args.node_rank,
            args.server_addr,
            args.server_client_master_port,
        )
        train(args, args.num_client_nodes)
        glt.distributed.shutdown_client()


if __name__ == "__main__":
    main()
