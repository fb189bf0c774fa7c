import logging
import multiprocessing

import torch.distributed as dist

logging.basicConfig()


def join(names):
    dist.barrier()


def receive(channel):
    return channel.get()


dist.init_process_group("gloo")
rank = dist.get_rank()
channel = multiprocessing.Queue()
print(f"-- [Client {rank}] Initializing client ...")
if rank == 0:
    logging.error(
        "Failed to respond to 'global_barrier' in time, got error Followers ['client-3'] timed out in "
        "_all_gather after 15.00 seconds. The first exception is RPCErr:1:RPC ran for more than set timeout "
        "(15000 ms) and will now be marked with an error"
    )
if rank == 3:
    receive(channel)  # nobody sends
join(["client-0", "client-1", "client-2", "client-3"])
