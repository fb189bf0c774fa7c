#!/usr/bin/env python3
"""Writes the logs of the cases that describe a job instead of having ready logs.

  generate.py           all of them, to logs/NAME/ beside this file
  generate.py NAME ...  these

A case's `make` says which job it is: hosts, ranks, launcher, noise, and what happens. A family (the
first half of this file) plays the job and collects the lines that its processes print. A launcher (the
second half) adds the lines that it prints itself. A view writes them to files as a user finds them.
The messages are those that the programs print. The seed is the case's name, so each run writes the same.
"""

import json
import random
import shutil
import sys
from datetime import datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
SITE = "/opt/venv/lib/python3.11/site-packages/"
WORK = "/home/user/project/"
SIGNALS = {1: "SIGHUP", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
SIGNAL_TEXTS = {6: "Aborted", 7: "Bus error", 9: "Killed", 11: "Segmentation fault", 15: "Terminated"}
RULE = "-" * 74


class Job:
    """A job that runs: its processes, a clock, the lines that were printed, and how each rank ended."""

    def __init__(self, name, make):
        self.name = name
        self.make = make
        self.random = random.Random(name)
        self.hosts = make.get("hosts", ["gpu1"])
        self.per_host = make.get("per_host", 4)
        self.ranks = list(range(len(self.hosts) * self.per_host))
        self.torch = tuple(int(part) for part in make.get("torch", "2.6").split("."))
        self.script = make.get("script", "train.py")
        self.began = datetime(2025, 3, 1) + timedelta(seconds=self.random.randrange(20_000_000))
        self.time = 0.0
        self.lines = []  # (time, rank or host or None for the launcher's console, is it stdout, text)
        self.ends = {}  # rank: (time, exit code, negative for a signal)
        self.pids = {}
        for host in self.hosts:
            first = self.random.randrange(3_000, 900_000)
            self.pids[host] = first
            for rank in self.ranks:
                if self.host(rank) == host:
                    first += self.random.randrange(1, 4)
                    self.pids[rank] = make.get("pids", {}).get(str(rank), first)

    def host(self, rank):
        return self.hosts[rank // self.per_host]

    def local(self, rank):
        return rank % self.per_host

    def address(self, host):
        return self.make.get("addresses", [f"10.0.0.{n + 1}" for n in range(len(self.hosts))])[self.hosts.index(host)]

    def port(self):
        return self.random.randrange(20_000, 60_000)

    def stamp(self, form, at=None):
        return (self.began + timedelta(seconds=self.time if at is None else at)).strftime(form)

    def say(self, source, text, at=None, out=False):
        """Lines of one process. One that ends in NUL has no newline: a bar of progress."""
        at = self.time if at is None else at
        for number, line in enumerate(text.split("\n")):
            self.lines.append((at + number * 1e-4, source, out, line))

    def fill(self, text, rank):
        """The text with the facts of a rank in place of {rank}, {host} and the like."""
        host = self.host(rank)
        facts = {
            "rank": rank,
            "local": self.local(rank),
            "world": len(self.ranks),
            "host": host,
            "pid": self.pids[rank],
            "ip": self.address(host),
            "ip0": self.address(self.hosts[0]),
            "port": self.port(),
            "day": self.stamp("%Y-%m-%d"),
            "clock": self.stamp("%H:%M:%S"),
        }
        for key, value in facts.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    def mark(self):
        """Since torch 2.3 each line of a rank's traceback has its number, once there is a process group."""
        return self.torch >= (2, 3) and self.make.get("group", True)

    def traceback(self, rank, frames, error, at=None, chain=()):
        """An exception as Python prints it. A frame is "file:line:function:code"."""
        parts = []
        for cause_frames, cause_error, link in chain:
            parts += traceback_lines(cause_frames, cause_error) + ["", link, ""]
        parts += traceback_lines(frames, error)
        prefix = f"[rank{rank}]: " if self.mark() else ""
        self.say(rank, "\n".join(prefix + self.fill(line, rank) for line in parts), at)

    def native(self, rank, level, place, text, at=None):
        """A line of torch's C++ code."""
        at = self.time if at is None else at
        if self.torch >= (2, 3):
            mark = f"[rank{rank}]:[{level}{self.stamp('%m%d %H:%M:%S', at).lstrip('0')}.{self.random.randrange(10**9):09} {place}] "
        else:
            mark = f"[{level} {place}] "
        self.say(rank, mark + text, at)

    def end(self, rank, code, at=None):
        self.ends.setdefault(rank, (self.time if at is None else at, code))


def traceback_lines(frames, error):
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        path, number, function, code = frame.split(":", 3)
        lines += [f'  File "{full_path(path)}", line {number}, in {function}', f"    {code}"]
    return lines + list(error)


def full_path(path):
    if path.startswith(("/", "<")):
        return path
    library = path.split("/")[0] in LIBRARIES and "/" in path
    return (SITE if library else WORK) + path


LIBRARIES = (
    "torch transformers accelerate deepspeed lightning pytorch_lightning megatron ray dgl graphstorm graphlearn_torch "
    "torch_geometric huggingface_hub datasets PIL numpy multiprocessing requests fsspec litdata safetensors trl"
).split()


# ---- before it happens: what healthy jobs print, too ------------------------------------------------------------


def warm_up(job):
    """The noise at the start, then steps of training."""
    for noise in job.make.get("noise", []):
        NOISE[noise](job)
        job.time += 1 + job.random.random()
    PROGRESS[job.make.get("progress", "loss")](job, job.make.get("steps", 6))


def noise_threads(job):
    text = (
        "*****************************************\nSetting OMP_NUM_THREADS environment variable for each process to be 1 in "
        "default, to avoid your system being overloaded, please further tune the variable for optimal performance in your "
        "application as needed. \n*****************************************"
    )
    for host in job.hosts:
        for line in text.split("\n"):
            job.say(host, agent_line(job, host, "W", "torch/distributed/run.py:792", "torch.distributed.run", line))


def noise_nccl(job):
    for rank in job.ranks:
        head = f"{job.host(rank)}:{job.pids[rank]}:{job.pids[rank] + 400} [{job.local(rank)}] NCCL INFO "
        address = job.address(job.host(rank))
        for number, text in enumerate(
            [
                f"Bootstrap : Using eth0:{address}<0>",
                "NET/Plugin: No plugin found (libnccl-net.so), using internal implementation",
                "Failed to open libibverbs.so[.1]",
                f"NET/Socket : Using [0]eth0:{address}<0>",
                "Using non-device net plugin version 0",
                f"comm 0x{job.random.randrange(16**12):012x} rank {rank} nranks {len(job.ranks)} cudaDev {job.local(rank)} "
                f"nvmlDev {job.local(rank)} busId {job.random.randrange(16, 200):x}000 commId 0x8f3b2d1c - Init START",
                "NVLS multicast support is not available on dev " + str(job.local(rank)),
                "Connected all rings",
                f"comm rank {rank} nranks {len(job.ranks)} - Init COMPLETE",
            ]
        ):
            job.say(rank, head + text, job.time + number * 0.02 + rank * 0.003)


def noise_tensorflow(job):
    for rank in job.ranks:
        at = job.time + job.random.random() * 0.3
        stamp = job.stamp("%Y-%m-%d %H:%M:%S", at) + f".{job.random.randrange(10**6):06}"
        job.say(
            rank,
            f"{stamp}: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] Unable to register cuFFT factory: "
            "Attempting to register factory for plugin cuFFT when one has already been registered\n"
            "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
            f"E0000 00:00:1736163964.084812 {job.pids[rank]} cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to "
            "register factory for plugin cuDNN when one has already been registered\n"
            f"{stamp}: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT",
            at,
        )


def noise_warnings(job):
    for rank in job.ranks:
        job.say(
            rank,
            f"{SITE}torch/utils/checkpoint.py:1399: FutureWarning: `torch.cpu.amp.autocast(args...)` is deprecated. Please use "
            "`torch.amp.autocast('cpu', args...)` instead.\n  with device_autocast_ctx, torch.cpu.amp.autocast(**cpu_autocast_kwargs):"
            "  # type: ignore[attr-defined]",
            job.time + job.random.random() * 0.5,
        )


def noise_tokenizers(job):
    for rank in job.ranks:
        job.say(
            rank,
            "huggingface/tokenizers: The current process just got forked, after parallelism has already been used. Disabling "
            "parallelism to avoid deadlocks...\nTo disable this warning, you can either:\n\t- Avoid using `tokenizers` before the "
            "fork if possible\n\t- Explicitly set the environment variable TOKENIZERS_PARALLELISM=(true | false)",
            job.time + job.random.random() * 0.5,
        )


def noise_shards(job):
    for rank in job.ranks:
        for shard in range(5):
            job.say(
                rank,
                f"\rLoading checkpoint shards: {shard * 25:3}%|{'#' * shard}{' ' * (4 - shard)}| {shard}/4 [00:0{shard}<00:03,  1.2s/it]\0",
                job.time + shard * 0.2 + rank * 0.01,
            )
        job.say(rank, "", job.time + 1.2 + rank * 0.01)
    job.time += 1.3


def noise_lightning(job):
    job.say(0, "GPU available: True (cuda), used: True\nTPU available: False, using: 0 TPU cores\nHPU available: False, using: 0 HPUs", out=True)
    for rank in job.ranks:
        job.say(rank, f"Initializing distributed: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{len(job.ranks)}", job.time + 0.1 + rank * 0.01, True)
    job.say(
        0,
        f"{'-' * 100}\ndistributed_backend=nccl\nAll distributed processes registered. Starting with {len(job.ranks)} processes\n{'-' * 100}",
        job.time + 0.5,
        True,
    )


def noise_deepspeed(job):
    for rank in job.ranks:
        at = job.time + rank * 0.05
        stamp = job.stamp("[%Y-%m-%d %H:%M:%S,", at) + f"{job.random.randrange(1000):03}]"
        job.say(rank, f"{stamp} [INFO] [real_accelerator.py:222:get_accelerator] Setting ds_accelerator to cuda (auto detect)", at, True)
        job.say(rank, f"{stamp} [INFO] [comm.py:652:init_distributed] cdb=None", at + 0.01, True)
        job.say(
            rank,
            " [WARNING]  async_io requires the dev libaio .so object and headers but these were not found.\n"
            " [WARNING]  using untested triton version (3.2.0), only 1.0.0 is known to be compatible",
            at + 0.02,
            True,
        )


def noise_dgl(job):
    for host in job.hosts:
        job.say(host, f"Server is waiting for connections on [{job.address(host)}:30050]...", out=True)
    for rank in job.ranks:
        at = job.time + 0.5 + rank * 0.1
        port = job.port()
        job.say(rank, f"Client [{job.pids[rank]}] waits on {job.address(job.host(rank))}:{port}", at, True)
        job.say(rank, f"Machine ({rank // job.per_host}) group (0) client ({rank}) connect to server successfuly!", at + 0.3, True)


def noise_mpi(job):
    job.say(
        None,
        f"{RULE}\nWARNING: There was an error initializing an OpenFabrics device.\n\n  Local host:   {job.hosts[0]}\n"
        f"  Local device: mlx5_0\n{RULE}",
    )
    job.say(
        None,
        f"[{job.hosts[0]}:{job.pids[job.hosts[0]]}] {len(job.ranks) - 1} more processes have sent help message "
        "help-mpi-btl-openib.txt / error in device init\n"
        f'[{job.hosts[0]}:{job.pids[job.hosts[0]]}] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages',
        job.time + 0.4,
    )


NOISE = {
    "threads": noise_threads,
    "nccl": noise_nccl,
    "tensorflow": noise_tensorflow,
    "warnings": noise_warnings,
    "tokenizers": noise_tokenizers,
    "shards": noise_shards,
    "lightning": noise_lightning,
    "deepspeed": noise_deepspeed,
    "dgl": noise_dgl,
    "mpi": noise_mpi,
}


def progress_loss(job, steps):
    """Every rank prints a line a step."""
    for step in range(steps):
        for rank in job.ranks:
            job.say(rank, f"epoch 0 step {step * 10} loss {1.9 * 0.96**step + job.random.random() / 10:.4f}", job.time + job.random.random() * 0.2, True)
        job.time += 2.0


def progress_first(job, steps):
    """Only rank 0 prints."""
    for step in range(steps):
        job.say(0, f"[{job.stamp('%Y-%m-%d %H:%M:%S')}] step {step * 50:>5} | loss {2.3 * 0.95**step:.4f} | lr 3.0e-04 | 41.2k tok/s", out=True)
        job.time += 3.0


def progress_bar(job, steps):
    """tqdm of rank 0, which writes over its line."""
    for step in range(steps):
        done = int(20 * step / 40)
        job.say(0, f"\rEpoch 0: {step * 5:3}%|{'█' * done}{' ' * (20 - done)}| {step * 12}/480 [00:{step:02}<04:12,  1.86it/s, loss={1.9 * 0.97**step:.3f}]\0")
        job.time += 1.0
    job.say(0, "")


def progress_trainer(job, steps):
    """The Trainer of transformers: a dictionary now and then, and a bar."""
    for step in range(steps):
        job.say(0, f"\r {step * 3:2}%|{'█' * (step // 3)}{' ' * 10}| {step * 10}/888 [{step:02}:41<9:12:08, 37.92s/it]\0")
        job.say(0, f"{{'loss': {1.4 * 0.97**step:.4f}, 'grad_norm': {0.7 + job.random.random():.6f}, 'learning_rate': 1.9e-05, 'epoch': {step / 100:.2f}}}", job.time + 0.5, True)
        job.time += 4.0
    job.say(0, "")


def progress_megatron(job, steps):
    """Megatron prints on its last rank."""
    for step in range(steps):
        job.say(
            job.ranks[-1],
            f" [{job.stamp('%Y-%m-%d %H:%M:%S')}] iteration {step + 40:8}/  500000 | consumed samples: {step * 512:12} | elapsed time per "
            f"iteration (ms): {4200 + job.random.random() * 90:.1f} | learning rate: 2.999000E-05 | global batch size:   512 | lm loss: "
            f"{2.3 * 0.99**step:.6E} | loss scale: 1.0 | grad norm: {0.5 + job.random.random():.3f} | number of skipped iterations:   0 | "
            "number of nan iterations:   0 |",
            out=True,
        )
        job.time += 4.2


def progress_none(job, steps):
    job.time += steps


PROGRESS = {
    "loss": progress_loss,
    "first": progress_first,
    "bar": progress_bar,
    "trainer": progress_trainer,
    "megatron": progress_megatron,
    "none": progress_none,
}


# ---- what lost peers print --------------------------------------------------------------------------------------

BACKWARD = [
    "train.py:214:<module>:main()",
    "train.py:171:main:loss.backward()",
    "torch/_tensor.py:626:backward:torch.autograd.backward(",
    "torch/autograd/graph.py:823:_engine_run_backward:return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass",
]


def victim_gloo(job, rank, culprit, at):
    at += 0.02 + 0.02 * job.random.random()
    lost = f"[{job.address(job.host(culprit))}]:{job.port()}"
    text = (
        f"/transport/tcp/pair.cc:534] Connection closed by peer {lost}"
        if job.random.random() < 0.5
        else f"/transport/tcp/pair.cc:525] Read error {lost}: Connection reset by peer"
    )
    job.traceback(rank, BACKWARD, [f"RuntimeError: [/pytorch/third_party/gloo/gloo{text}"], at)
    job.end(rank, 1, at + 0.2)


def victim_nccl(job, rank, culprit, at):
    """NCCL sees that the socket of its peer closed."""
    at += 0.5 + 0.3 * job.random.random()
    peer = f"{job.host(culprit)}<{job.port()}>"
    job.say(rank, f"\n{job.host(rank)}:{job.pids[rank]}:{job.pids[rank] + 612} [{job.local(rank)}] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer {peer}", at - 0.2)
    job.traceback(
        rank,
        BACKWARD,
        [
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2251, remote process "
            "exited or there was a network error, NCCL version 2.21.5",
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
            "Last error:",
            f"socketProgress: Connection closed by remote peer {peer}",
        ],
        at,
    )
    job.end(rank, 1, at + 0.3)


def victim_timeout(job, rank, culprit, at):
    watchdog(job, rank, at + 600 + job.random.random() * 0.4, 4711, "ALLREDUCE", 2359296, 2359296, 4713, 4710, 600_000)


def victim_store(job, rank, culprit, at):
    """The store, which runs in rank 0, has gone."""
    at += 0.3 * job.random.random()
    job.native(
        rank,
        "W",
        "TCPStore.cpp:125",
        f"[c10d] recvValue failed on SocketImpl(fd=4, addr=[{job.host(rank)}]:{job.port()}, remote=[{job.hosts[0]}]:29500): failed to recv, got 0 bytes",
        at,
    )
    job.say(rank, "Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:667 (most recent call first):", at + 0.01)
    job.traceback(
        rank,
        ["train.py:214:<module>:main()", "train.py:60:main:dist.barrier()", "torch/distributed/c10d_logger.py:81:wrapper:return func(*args, **kwargs)",
         "torch/distributed/distributed_c10d.py:4551:barrier:work = group.barrier(opts=opts)"],
        ["torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d "
         "key-value store by key '0', but store->get('0') got error: Connection reset by peer"],
        at + 0.1,
    )
    job.end(rank, 1, at + 0.3)


def victim_none(job, rank, culprit, at):
    """It waits until the launcher ends it."""


VICTIMS = {"gloo": victim_gloo, "nccl": victim_nccl, "timeout": victim_timeout, "store": victim_store, "none": victim_none}


def lose_peers(job, culprits, at):
    victim = VICTIMS[job.make.get("victims", "none")]
    for rank in job.ranks:
        if rank not in culprits and rank not in job.ends:
            victim(job, rank, culprits[0], at + job.random.random() * 0.05)


def watchdog(job, rank, at, sequence, operation, size_in, size_out, enqueued, completed, limit):
    """torch ends a process whose collective took too long."""
    work = f"WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn={size_in}, NumelOut={size_out}, Timeout(ms)={limit})"
    ran = f"{work} ran for {limit + job.random.randrange(5, 99)} milliseconds before timing out."
    group = f"PG ID 0 PG GUID 0(default_pg) Rank {rank}" if job.torch >= (2, 5) else f"PG 0 (default_pg) Rank {rank}"
    job.native(rank, "E", "ProcessGroupNCCL.cpp:616", f"[Rank {rank}] Watchdog caught collective operation timeout: {ran}", at)
    job.native(
        rank,
        "E",
        "ProcessGroupNCCL.cpp:1785",
        f"[{group}] Exception (either an error or timeout) detected by watchdog at work: {sequence}, last enqueued NCCL work: {enqueued}, "
        f"last completed NCCL work: {completed}.",
        at + 0.01,
    )
    job.native(rank, "E", "ProcessGroupNCCL.cpp:1834", f"[{group}] Timeout at NCCL work: {sequence}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.", at + 0.5)
    job.native(
        rank,
        "E",
        "ProcessGroupNCCL.cpp:630",
        f"[Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations "
        "might run on corrupted/incomplete data.",
        at + 0.51,
    )
    job.native(rank, "E", "ProcessGroupNCCL.cpp:636", f"[Rank {rank}] To avoid data inconsistency, we are taking the entire process down.", at + 0.52)
    abort(job, rank, f"[Rank {rank}] Watchdog caught collective operation timeout: {ran}", at + 0.6)


def abort(job, rank, error, at):
    """The watchdog's thread ends the process, as torch's C++ code does it: the message three times, with its own stack."""
    group = f"PG ID 0 PG GUID 0(default_pg) Rank {rank}" if job.torch >= (2, 5) else f"PG 0 (default_pg) Rank {rank}"
    stack = "\n".join(
        [
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f64e3b3af86 in " + SITE + "torch/lib/libc10.so)",
            "frame #1: c10d::ProcessGroupNCCL::watchdogHandler() + 0x233 (0x7f64e4e3e313 in " + SITE + "torch/lib/libtorch_cuda.so)",
            "frame #2: c10d::ProcessGroupNCCL::ncclCommWatchdog() + 0x10c (0x7f64e4e406fc in " + SITE + "torch/lib/libtorch_cuda.so)",
            "frame #3: <unknown function> + 0xdbbf4 (0x7f6532c9bbf4 in /opt/venv/bin/../lib/libstdc++.so.6)",
            "frame #4: clone + 0x43 (0x7f6534a7b133 in /lib/x86_64-linux-gnu/libc.so.6)",
            "",
        ]
    )
    first, *others = error.split("\n")
    raised = "\nException raised from ncclCommWatchdog at ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1601 (most recent call first):\n"
    details = "".join("\n" + line for line in others) + raised + stack
    job.native(rank, "E", "ProcessGroupNCCL.cpp:1595", f"[{group}] Process group watchdog thread terminated with exception: {first}{details}", at)
    job.say(
        rank,
        f"terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [{group}] Process group watchdog thread terminated "
        f"with exception: {first}{details}",
        at + 0.01,
    )
    job.end(rank, -6, at + 0.1)


# ---- the families: what happens ---------------------------------------------------------------------------------


def family_raised(job):
    """Some ranks raise an exception; the others lose them.

    culprits, frames, error, chain: the exception; before: what these ranks print first; spread: seconds between them; code.
    """
    make = job.make
    warm_up(job)
    culprits = make["culprits"]
    for number, rank in enumerate(culprits):
        at = job.time + number * make.get("spread", 0.03)
        for offset, text in enumerate(make.get("before", [])):
            job.say(rank, job.fill(text, rank), at + offset * 0.01)
        at += len(make.get("before", [])) * 0.01
        job.traceback(rank, make["frames"], make["error"], at, make.get("chain", ()))
        after = make.get("after", [])
        for offset, text in enumerate(after):
            job.say(rank, job.fill(text, rank), at + 0.05 + offset * 0.01)
        job.end(rank, make.get("code", 1), at + 0.1)
    lose_peers(job, culprits, job.time)


def family_signalled(job):
    """A signal ends some ranks: signal, culprits, and what native code prints before."""
    make = job.make
    warm_up(job)
    for rank in make["culprits"]:
        for offset, text in enumerate(make.get("before", [])):
            job.say(rank, job.fill(text, rank), job.time + offset * 0.01)
        job.end(rank, -make["signal"], job.time + 0.2)
    lose_peers(job, make["culprits"], job.time)


def family_aborted(job):
    """The watchdog of some ranks meets an error of CUDA or NCCL, not a time limit."""
    make = job.make
    warm_up(job)
    for number, rank in enumerate(make["culprits"]):
        abort(job, rank, job.fill("\n".join(make["error"]), rank), job.time + number * make.get("spread", 0.05))
    lose_peers(job, make["culprits"], job.time)


def family_timed_out(job):
    """A collective times out. works: rank or "*": [sequence, operation, size in, size out, enqueued, completed]; silent: ranks that print nothing."""
    make = job.make
    warm_up(job)
    job.time += make.get("limit", 600_000) / 1000
    for rank in job.ranks:
        if rank in make.get("silent", []):
            continue
        work = make["works"].get(str(rank), make["works"].get("*"))
        watchdog(job, rank, job.time + job.random.random() * 0.5, *work, make.get("limit", 600_000))


def family_messages(job):
    """Lines as the case lists them: [source, text, seconds later]; a source is a rank, "*" for every rank, a host, or null for the launcher's console."""
    make = job.make
    if make.get("train", True):
        warm_up(job)
    for source, text, *later in make["lines"]:
        job.time += later[0] if later else 0.01
        for rank in job.ranks if source == "*" else [source]:
            if isinstance(rank, int):
                marked = job.fill(text, rank)
                if make.get("marked") and job.mark():
                    marked = "\n".join(f"[rank{rank}]: {line}" for line in marked.split("\n"))
                job.say(rank, marked, job.time + (job.random.random() * 0.05 if source == "*" else 0))
            else:
                job.say(rank, job.fill(text, 0))
    for rank, code in make.get("ends", {}).items():
        for number in job.ranks if rank == "*" else [int(rank)]:
            job.end(number, code)
    if make.get("victims"):
        lose_peers(job, make["culprits"], job.time)


def family_healthy(job):
    """Trains, prints what looks alarming, goes on, and finishes."""
    make = job.make
    warm_up(job)
    for source, text, *later in make["lines"]:
        job.time += later[0] if later else 0.5
        for rank in job.ranks if source == "*" else [source]:
            number = rank if isinstance(rank, int) else 0
            job.say(rank, job.fill(text, number), job.time + (job.random.random() * 0.1 if source == "*" else 0))
    job.time += 1
    PROGRESS[make.get("progress", "loss")](job, make.get("more", 4))
    for source, text in make.get("finish", [[0, "training finished, checkpoint saved to /data/checkpoints/last.pt"]]):
        job.time += 0.2
        for rank in job.ranks if source == "*" else [source]:
            job.say(rank, job.fill(text, rank if isinstance(rank, int) else 0), out=True)
    for rank in job.ranks:
        job.end(rank, 0)


FAMILIES = {
    "raised": family_raised,
    "signalled": family_signalled,
    "aborted": family_aborted,
    "timed-out": family_timed_out,
    "messages": family_messages,
    "healthy": family_healthy,
}


# ---- the launchers: what they print about ends, and how they mark a rank's lines --------------------------------


def agent_line(job, host, level, place, module, text):
    """A line of torchrun itself, in the form of its version."""
    if job.torch >= (2, 3):
        return f"{level}{job.stamp('%m%d %H:%M:%S.%f')[:-3]}000 {job.pids[host]} {place}] {text}"
    name = {"W": "WARNING", "E": "ERROR", "I": "INFO"}[level]
    if job.torch >= (2, 1):
        return f"[{job.stamp('%Y-%m-%d %H:%M:%S,%f')[:-3]}] {module}: [{name}] {text}"
    return f"{name}:{module}:{text}"


ELASTIC = "torch/distributed/elastic/multiprocessing/api.py"
ELASTIC_MODULE = "torch.distributed.elastic.multiprocessing.api"


def forget_after(job, rank, at):
    """A process that the launcher ended at this time printed nothing later."""
    job.lines = [line for line in job.lines if line[1] != rank or line[0] <= at]


def launcher_torchrun(job):
    """An agent on each host: it ends its other processes when one fails, and prints its table of failures."""
    program = "/opt/venv/bin/accelerate" if job.make["launcher"] == "accelerate" else "/opt/venv/bin/torchrun"
    for host in job.hosts:
        ranks = [rank for rank in job.ranks if job.host(rank) == host]
        failures = sorted((job.ends[rank] + (rank,) for rank in ranks if rank in job.ends and job.ends[rank][1] != 0))
        if not failures:
            continue
        seen = failures[0][0] + job.make.get("poll", 0.1)
        failed = [(at, code, rank) for at, code, rank in failures if at <= seen]
        job.time = seen
        for rank in ranks:
            if not any(rank == other for _, _, other in failed) and job.ends.get(rank, (seen + 1, 1))[0] > seen:
                forget_after(job, rank, seen)
                job.say(host, agent_line(job, host, "W", ELASTIC + ":897", ELASTIC_MODULE, f"Sending process {job.pids[rank]} closing signal SIGTERM"))
        failed.sort(key=lambda failure: failure[2])
        at, code, rank = failed[0]  # all have the time at which they were seen, so the first local rank counts as first
        job.time += 1.5
        job.say(
            host,
            agent_line(job, host, "E", ELASTIC + ":869", ELASTIC_MODULE, f"failed (exitcode: {code}) local_rank: {job.local(rank)} (pid: {job.pids[rank]}) of binary: /opt/venv/bin/python3"),
        )
        job.say(host, "\n".join(AGENT_STACK).replace("PROGRAM", program), job.time + 0.01)
        job.say(host, failures_table(job, host, failed), job.time + 0.02)
    return lambda rank, out: f"[default{job.local(rank)}]:" if job.make.get("tee") else ""


AGENT_STACK = [
    "Traceback (most recent call last):",
    '  File "PROGRAM", line 8, in <module>',
    "    sys.exit(main())",
    "             ^^^^^^",
    f'  File "{SITE}torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper',
    "    return f(*args, **kwargs)",
    "           ^^^^^^^^^^^^^^^^^^",
    f'  File "{SITE}torch/distributed/run.py", line 918, in main',
    "    run(args)",
    f'  File "{SITE}torch/distributed/run.py", line 909, in run',
    "    elastic_launch(",
    f'  File "{SITE}torch/distributed/launcher/api.py", line 138, in __call__',
    "    return launch_agent(self._config, self._entrypoint, list(args))",
    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    f'  File "{SITE}torch/distributed/launcher/api.py", line 269, in launch_agent',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
]


def failures_table(job, host, failed):
    def entry(number, failure):
        at, code, rank = failure
        traceback = (
            f"Signal {-code} ({SIGNALS[-code]}) received by PID {job.pids[rank]}"
            if code < 0
            else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        )
        return [
            f"[{number}]:",
            f"  time      : {job.stamp('%Y-%m-%d_%H:%M:%S', failed[0][0] + 0.1)}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {job.local(rank)})",
            f"  exitcode  : {code} (pid: {job.pids[rank]})",
            "  error_file: <N/A>",
            f"  traceback : {traceback}",
        ]

    others = [line for number, failure in enumerate(failed[1:], 1) for line in entry(number, failure)] or ["  <NO_OTHER_FAILURES>"]
    return "\n".join(
        ["=" * 60, f"{job.script} FAILED", "-" * 60, "Failures:", *others, "-" * 60, "Root Cause (first observed failure):", *entry(0, failed[0]), "=" * 60]
    )


def launcher_srun(job):
    """srun --kill-on-bad-exit: the first bad end ends the step."""
    step = f"{job.random.randrange(10_000, 9_000_000)}.0"
    failures = sorted((at, code, rank) for rank, (at, code) in job.ends.items() if code != 0)
    if failures:
        first = failures[0][0]
        killed = first + job.make.get("grace", 0.3)
        job.time = first + 0.2
        noted = [failure for failure in failures if failure[0] <= killed]
        for at, code, rank in noted:
            job.say(None, f"srun: error: {job.host(rank)}: task {rank}: {srun_end(code)}", at + 0.2)
            if (at, code, rank) == noted[0]:
                job.say(None, f"srun: Terminating StepId={step}", at + 0.21)
        for host in job.hosts:
            job.say(None, f"slurmstepd: error: *** STEP {step} ON {host} CANCELLED AT {job.stamp('%Y-%m-%dT%H:%M:%S', killed)} ***", killed + 0.01)
        for rank in job.ranks:
            if rank not in [rank for _, _, rank in noted]:
                forget_after(job, rank, killed)
                job.say(None, f"srun: error: {job.host(rank)}: task {rank}: Terminated", killed + 0.5 + rank * 0.001)
        job.say(None, "srun: Force Terminated StepId=" + step, killed + 1)
    return lambda rank, out: f"{rank}: " if job.make.get("label") else ""


def srun_end(code):
    if code >= 0:
        return f"Exited with exit code {code}"
    return SIGNAL_TEXTS[-code] + (" (core dumped)" if -code in (6, 7, 11) else "")


def launcher_mpirun(job):
    """mpirun --tag-output of Open MPI 4, or of 5, whose launcher is PRRTE."""
    new = job.make.get("mpi", 4) == 5
    failures = sorted((at, code, rank) for rank, (at, code) in job.ends.items() if code != 0)
    if failures:
        at, code, rank = failures[0]
        for other in job.ranks:
            if other != rank and job.ends.get(other, (at + 1, 1))[0] > at + 0.15:
                forget_after(job, other, at + 0.15)
        host, pid = job.host(rank), job.pids[rank]
        job.time = at + 0.4
        if new and code < 0:
            text = f"{RULE}\nprterun noticed that process rank {rank} with PID {pid} on node {host} exited on\nsignal {-code} ({SIGNAL_TEXTS[-code]}).\n{RULE}"
        elif new:
            text = (
                f"{RULE}\nprterun detected that one or more processes exited with non-zero status,\nthus causing the job to be terminated. The "
                f"first process to do so was:\n\n   Process name: [prterun-{job.hosts[0]}-{pid}@1,{rank}]\n   Exit code:    {code}\n{RULE}"
            )
        else:
            text = (
                f"{RULE}\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n"
                f"{RULE}\n{RULE}\n"
            )
            if code < 0:
                text += f"mpirun noticed that process rank {rank} with PID {pid} on node {host} exited on signal {-code} ({SIGNAL_TEXTS[-code]}).\n{RULE}"
            else:
                text += (
                    "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first "
                    f"process to do so was:\n\n  Process name: [[{job.random.randrange(9000, 60000)},1],{rank}]\n  Exit code:    {code}\n{RULE}"
                )
        job.say(None, text)
    space = " " if new else ""
    return lambda rank, out: f"[1,{rank}]<{'stdout' if out else 'stderr'}>:{space}"


def launcher_deepspeed(job):
    """The launcher of DeepSpeed, on several hosts through pdsh, which marks lines with the host only."""
    failed_hosts = []
    for host in job.hosts:
        ranks = [rank for rank in job.ranks if job.host(rank) == host]
        failures = sorted((job.ends[rank] + (rank,) for rank in ranks if rank in job.ends and job.ends[rank][1] != 0))
        if not failures:
            continue
        at, code, _ = failures[0]
        job.time = at + 1.0
        for rank in ranks:
            forget_after(job, rank, job.time)
            job.say(host, f"{deepspeed_stamp(job)} [INFO] [launch.py:335:sigkill_handler] Killing subprocess {job.pids[rank]}", job.time + rank * 0.03)
        job.time += 0.5
        # Its message always has the command of the last local rank, whichever failed.
        job.say(
            host,
            f"{deepspeed_stamp(job)} [ERROR] [launch.py:341:sigkill_handler] ['/opt/venv/bin/python3', '-u', '{job.script}', "
            f"'--local_rank={job.per_host - 1}', '--deepspeed', 'ds_config.json'] exits with return code = {code}",
        )
        failed_hosts.append((job.time + 0.3, host, code))
    if len(job.hosts) > 1:
        for at, host, code in sorted(failed_hosts):
            job.say(None, f"pdsh@{job.hosts[0]}: {host}: ssh exited with exit code {code if code > 0 else 128 - code}", at)
        return lambda rank, out: f"{job.host(rank)}: "
    return lambda rank, out: ""


def deepspeed_stamp(job):
    return f"[{job.stamp('%Y-%m-%d %H:%M:%S,%f')[:-3]}]"


def launcher_ray(job):
    """Ray Train: the driver prints the exception of the worker that failed first."""
    for rank in job.ranks:
        job.say(
            None,
            f"(TorchTrainer pid={job.pids[job.hosts[0]]}, ip={job.address(job.hosts[0])}) - (node_id={job.random.randrange(16**24):024x}, "
            f"ip={job.address(job.host(rank))}, pid={job.pids[rank]}) world_rank={rank}, local_rank={job.local(rank)}, node_rank={rank // job.per_host}",
            0.5 + rank * 1e-3,
        )
    job.say(None, f"(TorchTrainer pid={job.pids[job.hosts[0]]}, ip={job.address(job.hosts[0])}) Started distributed worker processes: ", 0.49)
    failures = sorted((at, code, rank) for rank, (at, code) in job.ends.items() if code != 0)
    if failures:
        at, code, rank = failures[0]
        for other in job.ranks:
            if other != rank:
                forget_after(job, other, at + 0.5)
        if code < 0:
            ray_death(job, rank, at + 0.5)
        else:
            ray_error(job, rank, at + 0.5)
    return lambda rank, out: f"(RayTrainWorker pid={job.pids[rank]}, ip={job.address(job.host(rank))}) "


def ray_error(job, rank, at):
    """Worker processes do not print their exception: the driver does."""
    own = [line for line in job.lines if line[1] == rank and not line[2]]
    start = next((number for number, line in enumerate(own) if "Traceback (most recent" in line[3]), 0)
    lines = [line[3].removeprefix(f"[rank{rank}]: ") for line in own[start:]]
    job.lines = [line for line in job.lines if line not in own[start:]]
    kind = lines[-1].split(":")[0].split(".")[-1]
    stack = "\n".join(lines[1:])
    driver = job.address(job.hosts[0])
    worker = (
        f"ray.exceptions.RayTaskError({kind}): ray::_RayTrainWorker__execute.get_next() (pid={job.pids[rank]}, ip={job.address(job.host(rank))}, "
        f"actor_id={job.random.randrange(16**32):032x}, repr=<ray.train._internal.worker_group.RayTrainWorker object at 0x7faac7d87990>)\n"
        f'  File "{SITE}ray/train/_internal/worker_group.py", line 39, in __execute\n    raise skipped from exception_cause(skipped)\n'
        f'  File "{SITE}ray/train/_internal/utils.py", line 167, in discard_return_wrapper\n    train_func(*args, **kwargs)\n{stack}'
    )
    job.say(
        None,
        f"{job.stamp('%Y-%m-%d %H:%M:%S', at)},588\tERROR tune_controller.py:1331 -- Trial task failed for trial TorchTrainer_3f4dc_00000\n"
        f'Traceback (most recent call last):\n  File "{SITE}ray/air/execution/_internal/event_manager.py", line 110, in resolve_future\n'
        f'    result = ray.get(future)\n  File "{SITE}ray/_private/worker.py", line 1053, in get_objects\n    raise value.as_instanceof_cause()\n'
        f"ray.exceptions.RayTaskError({kind}): ray::_Inner.train() (pid={job.pids[job.hosts[0]]}, ip={driver}, actor_id="
        f"{job.random.randrange(16**32):032x}, repr=TorchTrainer)\n"
        f'  File "{SITE}ray/tune/trainable/trainable.py", line 329, in train\n    raise skipped from exception_cause(skipped)\n{worker}',
        at,
    )
    ray_footer(job, at)


def ray_death(job, rank, at):
    ip = job.address(job.host(rank))
    pid = job.pids[rank]
    driver = f"(TorchTrainer pid={job.pids[job.hosts[0]]}, ip={job.address(job.hosts[0])})"
    detail = (
        "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some "
        "potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The "
        "worker is crashed unexpectedly due to SIGSEGV or other unexpected errors."
    )
    job.say(
        None,
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for "
        f"the dead worker. RayTask ID: ffffffffffffffff{job.random.randrange(16**16):016x} Worker ID: {job.random.randrange(16**32):032x} Node ID: "
        f"{job.random.randrange(16**32):032x} Worker IP address: {ip} Worker port: {job.port()} Worker PID: {pid} {detail}\n"
        f"{driver} Worker {rank} has failed.\n"
        f"{driver} Graceful shutdown of backend failed. This is expected if one of the workers has crashed.\n"
        f"{job.stamp('%Y-%m-%d %H:%M:%S', at)},478\tERROR tune_controller.py:1331 -- Trial task failed for trial TorchTrainer_4caca_00000\n"
        f'Traceback (most recent call last):\n  File "{SITE}ray/air/execution/_internal/event_manager.py", line 110, in resolve_future\n'
        f'    result = ray.get(future)\n  File "{SITE}ray/train/_internal/utils.py", line 57, in check_for_failure\n    ray.get(object_ref)\n'
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n"
        f"\tactor_id: {job.random.randrange(16**32):032x}\n\tpid: {pid}\n\tnamespace: 38ecb44a-73a7-4c3a-b834-231ec473fab5\n\tip: {ip}\n"
        f"The actor is dead because its worker process has died. {detail}",
        at,
    )
    ray_footer(job, at)


def ray_footer(job, at):
    job.say(
        None,
        f"\nTraining errored after 0 iterations at {job.stamp('%Y-%m-%d %H:%M:%S', at)}. Total running time: 4min 11s\n"
        f"{job.stamp('%Y-%m-%d %H:%M:%S', at)},617\tERROR tune.py:1037 -- Trials did not complete: [TorchTrainer_3f4dc_00000]\n"
        "ray.train.base_trainer.TrainingFailedError: The Ray Train run failed. Please inspect the previous error messages for a cause. After fixing the "
        "issue (assuming that the error is not caused by your own application logic, but rather an error such as OOM), you can restart the run from "
        "scratch or continue this run.",
        at + 0.2,
    )


def launcher_spawn(job):
    """torch.multiprocessing.spawn: the parent prints the exception of the process that failed first."""
    failures = sorted((at, code, rank) for rank, (at, code) in job.ends.items() if code != 0)
    if failures:
        at, code, rank = failures[0]
        own = [line for line in job.lines if line[1] == rank and not line[2]]
        start = next((number for number, line in enumerate(own) if "Traceback (most recent" in line[3]), len(own))
        lines = [line[3].removeprefix(f"[rank{rank}]: ") for line in own[start:]]
        job.lines = [line for line in job.lines if line not in own[start:]]
        job.time = at + 0.3
        for other in job.ranks:
            if other != rank:
                forget_after(job, other, at + 0.05)
                job.say(None, agent_line(job, job.hosts[0], "W", "torch/multiprocessing/spawn.py:169", "torch.multiprocessing.spawn", f"Terminating process {job.pids[other]} via signal SIGTERM"))
        head = traceback_lines(
            [f"{job.script}:96:<module>:mp.spawn(run, args=(world_size,), nprocs=world_size, join=True)", "torch/multiprocessing/spawn.py:340:spawn:return start_processes(fn, args, nprocs, join, daemon, start_method=\"spawn\")", "torch/multiprocessing/spawn.py:296:start_processes:while not context.join():"],
            [],
        )
        if code < 0:
            end = [f"torch.multiprocessing.spawn.ProcessExitedException: process {rank} terminated with signal {SIGNALS[-code]}"]
        else:
            end = ["torch.multiprocessing.spawn.ProcessRaisedException: ", "", f"-- Process {rank} terminated with the following error:", lines[0],
                   f'  File "{SITE}torch/multiprocessing/spawn.py", line 90, in _wrap', "    fn(i, *args)", *lines[1:], ""]
        job.say(None, "\n".join(head + end), job.time + 0.01)
    return lambda rank, out: ""


def launcher_lightning(job):
    """Lightning starts the other ranks of its host itself, and ends all when one fails."""
    failures = sorted((at, code, rank) for rank, (at, code) in job.ends.items() if code != 0)
    for at, code, rank in failures[:1]:
        job.say(
            job.ranks[0],
            f"[rank: {rank}] Child process with PID {job.pids[rank]} terminated with code {code}. Forcefully terminating all other processes to avoid zombies 🧟",
            at + 1,
        )
        for other in job.ranks:
            if other != rank:
                forget_after(job, other, at + 1.01)
    return lambda rank, out: ""


def launcher_dgl(job):
    """DGL's launch.py: ssh to each host, and torchrun's agent on each of them."""
    launcher_torchrun(job)
    for host in job.hosts:
        failed = [rank for rank in job.ranks if job.host(rank) == host and job.ends.get(rank, (0, 0))[1] != 0]
        if failed:
            at = max(line[0] for line in job.lines) + 0.5
            job.say(
                None,
                f"Called process error Command 'ssh -o StrictHostKeyChecking=no -p 22 {job.address(host)} 'cd /home/user/project; (export "
                f"DGL_ROLE=client DGL_NUM_SAMPLER=0; /opt/venv/bin/python3 -m torch.distributed.run --nproc_per_node={job.per_host} {job.script})'' "
                "returned non-zero exit status 1.",
                at,
            )
    if job.ends and any(code for _, code in job.ends.values()):
        job.say(None, "Task failed", max(line[0] for line in job.lines) + 1)
    return lambda rank, out: ""


def launcher_plain(job):
    """Something starts each rank by itself (pods, compose): no line says how a rank ended, unless the case has it."""
    return lambda rank, out: ""


LAUNCHERS = {
    "torchrun": launcher_torchrun,
    "accelerate": launcher_torchrun,
    "srun": launcher_srun,
    "mpirun": launcher_mpirun,
    "deepspeed": launcher_deepspeed,
    "ray": launcher_ray,
    "spawn": launcher_spawn,
    "lightning": launcher_lightning,
    "dgl": launcher_dgl,
    "plain": launcher_plain,
}


# ---- the views: the files that a user has -----------------------------------------------------------------------


def text_of(lines):
    """The file with these lines; a bar of progress has no newline."""
    return "".join(line[:-1] if line.endswith("\0") else line + "\n" for line in lines)


def write_views(job, mark, folder):
    view = job.make.get("view", "merged")
    late = job.make.get("late", {})  # seconds by which the lines of a host or rank reach the common file later
    files = {}

    def delay(source):
        return late.get(str(source), late.get(job.host(source), 0) if isinstance(source, int) else 0)

    for at, source, out, text in sorted(job.lines, key=lambda line: line[0] + delay(line[1])):
        rank = source if isinstance(source, int) else None
        host = job.host(rank) if rank is not None else source
        marked = (mark(rank, out) if rank is not None else "") + text
        pdsh = job.make["launcher"] == "deepspeed" and len(job.hosts) > 1
        if pdsh and rank is None and source is not None:
            marked = f"{source}: {text}"
        stamp = (job.began + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%S.") + f"{job.random.randrange(10**9):09}Z "
        for name, line in VIEWS[view](job, rank, host, out, marked, stamp):
            files.setdefault(name, []).append(line)
    for name, text in job.make.get("files", {}).items():
        files[name] = text
    for name, lines in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(lines))


def view_merged(job, rank, host, out, text, stamp):
    yield job.make.get("file", "train.log"), text


def view_hosts(job, rank, host, out, text, stamp):
    """A file for each host, and one for the console of the launcher."""
    yield f"{host or 'console'}.log", text


def view_log_dir(job, rank, host, out, text, stamp):
    """The tree of torchrun --log-dir --redirects 3."""
    if rank is None:
        yield "torchrun.log" if len(job.hosts) == 1 else f"{host}/torchrun.log", text
    else:
        top = "" if len(job.hosts) == 1 else f"{host}/"
        yield f"{top}none_k2x9w_1f/attempt_0/{job.local(rank)}/{'stdout' if out else 'stderr'}.log", text


def view_ranks(job, rank, host, out, text, stamp):
    """srun -o job.%t.out -e job.%t.err, and the batch script's own file."""
    if rank is None:
        yield "slurm-job.out", text
    else:
        yield f"job.{rank}.{'out' if out else 'err'}", text


def view_pods(job, rank, host, out, text, stamp):
    """kubectl logs --timestamps, a file for each pod; a pod is a host."""
    yield f"{host or 'events'}.log", stamp + text if host else text


def view_prefix(job, rank, host, out, text, stamp):
    """kubectl logs --prefix --timestamps of all pods."""
    yield "pods.log", f"[pod/{host}/pytorch] {stamp}{text}" if host else text


def view_compose(job, rank, host, out, text, stamp):
    """docker compose logs: a service is a host."""
    yield "compose.log", f"{host}  | {text}" if host else text


def view_label(job, rank, host, out, text, stamp):
    """srun --label of one agent of torchrun a host: the label is the host's number."""
    yield "slurm-job.out", f"{job.hosts.index(host)}: {text}" if host else text


VIEWS = {
    "merged": view_merged,
    "hosts": view_hosts,
    "log-dir": view_log_dir,
    "ranks": view_ranks,
    "pods": view_pods,
    "prefix": view_prefix,
    "compose": view_compose,
    "label": view_label,
}


def write_case(case, folder):
    job = Job(case["id"], case["make"])
    FAMILIES[case["make"]["family"]](job)
    mark = LAUNCHERS[case["make"]["launcher"]](job)
    shutil.rmtree(folder, ignore_errors=True)
    write_views(job, mark, folder)


def main(names):
    for path in sorted(HERE.glob("cases/*/case.json")):
        case = json.loads(path.read_text())
        if "make" in case and (not names or case["id"] in names):
            write_case(case, HERE / "logs" / case["id"])


if __name__ == "__main__":
    main(sys.argv[1:])
