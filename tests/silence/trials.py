#!/usr/bin/env python3
"""Tries what dgl-stacks concludes from connections: jobs on hosts of host-lab, in which one process does not come, or the network
loses data, or nothing is wrong. README.md describes the programs, the faults and what is recorded.

Usage: trials.py OUT [--program gloo|dgl|glt|glt_servers|mpi|perl] [--hosts N] [--per-host N] [--trials N] [--seed N] [--delay MS]
                     [--operations LIST] [--faults LIST] [--elements N] [--python PYTHON]
                     [--launcher torchrun|accelerate|mpirun|srun]

Each trial becomes a line of OUT, as common/verdict/tests/silence.rs reads it. With --launcher, dgl-stacks --any looks at a job that
this program has started, and OUT has what dgl-why says."""

import argparse
import glob
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(ROOT, "tests/silence")
LAB = os.path.join(ROOT, "tools/host-lab/host-lab")
OPERATIONS = {
    "gloo": ["all_reduce", "barrier", "all_to_all", "all_gather", "neighbours", "pipeline", "ring", "broadcast", "reduce"],
    "dgl": ["train", "barrier"],
    "glt": ["train", "sample"],
    "glt_servers": ["train", "sample"],
    "mpi": ["allreduce", "barrier", "alltoall", "allgather", "bcast", "reduce", "ring"],
    "perl": ["ring", "relay", "hub", "exchange", "stream"],
}
# In rank 0, which the others wait for as for any other: it evaluates the model or saves it.
OF_RANK_0 = ["evaluate", "save"]
# All do it, or nothing goes wrong: nobody is waited for.
HEALTHY = ["all_sleep", "all_evaluate", "all_save", "all_load", "slower", "pauses", "none"]
OF_SERVERS = ["stop_server", "hold"]
# The roles of ranks and of servers, other than worker.
ROLES = {"dgl": ("trainer", "server"), "glt_servers": ("train", "store")}
OF_NETWORK = ["cut", "lossy", "lossy_to"]
# After these, the job is ended.
FINAL = ["cut", "lossy", "lossy_to", "other", "leave", "missing", "stop_server"]

OWN_FILES = os.listdir(HERE)

MEASURED = [
    "since_sent_ms",
    "since_received_ms",
    "since_acknowledged_ms",
    "round_trip_us",
    "unacknowledged_bytes",
    "unsent_bytes",
    "unread_bytes",
]


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--program", choices=OPERATIONS, default="gloo")
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--per-host", type=int, default=1)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0, help="of host 1, in milliseconds in each direction")
    parser.add_argument("--operations")
    parser.add_argument("--faults", default="sleep,spin,stop")
    parser.add_argument("--elements", type=int, help="the size of the data, instead of one by chance")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--launcher", choices=["torchrun", "accelerate", "mpirun", "srun"])
    return parser.parse_args()


def wait_for(path, seconds=600, process=None):
    """Waits for a file, which is not made if that process ends."""
    begun = time.monotonic()
    while not os.path.exists(path):
        if time.monotonic() - begun > seconds or process and process.poll() is not None:
            raise TimeoutError(path)
        time.sleep(0.05)


class Recording:
    """What the rule reads of stacks. Ports are numbered, and addresses are those of hosts."""

    # Of more connections between two processes, those are kept that carried data last. GLT's samplers have dozens.
    BETWEEN_TWO = 4

    def __init__(self, stacks):
        self.numbers = {}
        members = [one for one in stacks if "rank" in one]
        ends = [((link["local"], link["peer"]), one) for one in stacks for link in one.get("connections", [])]
        self.ends = {addresses: (one["host"], one["pid"]) for addresses, one in ends}
        self.kept = self.kept_connections(link for one in members for link in one.get("connections", []))
        # a shell that stands before a program has nothing to be read
        self.processes = [one for one in map(self.process, members) if one["links"] or one["frames"] is not None]

    def kept_connections(self, links):
        """The addresses of the connections that are kept, by the processes between which they are."""
        of_two = {}
        for link in links:
            ends = frozenset([link["local"], link["peer"]])
            two = [self.ends.get(ends) for ends in [(link["local"], link["peer"]), (link["peer"], link["local"])]]
            moved = min(link.get("since_sent_ms", 1 << 32), link.get("since_received_ms", 1 << 32))
            if link["unread_bytes"] or link["unacknowledged_bytes"]:
                moved = -1
            connections = of_two.setdefault(frozenset(two), {})
            connections[ends] = min(moved, connections.get(ends, moved))
        kept = set()
        for connections in of_two.values():
            ranked = sorted(connections, key=connections.get)
            kept.update(ends for n, ends in enumerate(ranked) if n < self.BETWEEN_TWO or connections[ends] < 0)
        return kept

    def process(self, stack):
        threads = stack["threads"]
        main = next((thread for thread in threads if thread.get("name") == "MainThread"), next(iter(threads), None))
        row = {"role": stack["role"], "rank": stack["rank"], "host": stack["host"]}
        if "parent" in stack:
            row["is_child"] = True
        row["frames"] = main and "parent" not in stack and self.frames(main["frames"]) or None
        if row["frames"] and "system_call" in main:
            row["system_call"] = main["system_call"]
        row["links"] = [self.link(link, stack["host"]) for link in stack.get("connections", []) if self.is_read(link)]
        return row

    def frames(self, frames):
        """The frames down to the first one of a program here: nothing below it is read, if there is a package above it."""
        own = (n for n, frame in enumerate(frames) if frame.rsplit(" (", 1)[1].split(":")[0] in OWN_FILES)
        kept = frames[: next(own, len(frames)) + 1]
        return kept if any("/" in frame for frame in kept) else frames

    def is_read(self, link):
        """Connections within the job, and to hosts that do not answer."""
        is_lost = link["unacknowledged_bytes"] > 0 and link["peer"].startswith("10.77.0.")
        is_kept = frozenset([link["local"], link["peer"]]) in self.kept
        return is_lost or is_kept and (link["peer"], link["local"]) in self.ends

    def link(self, link, host):
        local, peer = (link[side].rsplit(":", 1) for side in ("local", "peer"))
        is_own = peer[0] == local[0] or not peer[0].startswith("10.77.0.")
        peer_host = host if is_own else int(peer[0].rsplit(".", 1)[1]) - 1
        port = lambda host, port: self.numbers.setdefault((host, port), len(self.numbers))
        row = [port(host, local[1]), peer_host, port(peer_host, peer[1])] + [link.get(name) for name in MEASURED]
        while not row[-1]:
            row.pop()
        return row


class Job:
    """A job of a program on the hosts of the lab."""

    numbers = itertools.count()
    # How long a fault lasts before anybody looks.
    WAITS_S = (1.5, 3)

    def __init__(self, options, lab_dir, missing=None):
        self.options, self.work = options, os.path.join(lab_dir, f"job-{next(self.numbers)}")
        self.name = f"silence-{os.path.basename(lab_dir)[-4:]}"
        self.trials = os.path.join(self.work, "trials")
        os.makedirs(self.trials)
        self.size = options.hosts * options.per_host
        # that of rank 0
        self.first_host = 0
        self.number = 0
        self.addresses = [f"10.77.0.{k + 1}" for k in range(options.hosts)]
        with open(os.path.join(self.work, "ip_config.txt"), "w") as file:
            file.write("".join(f"{address}\n" for address in self.addresses))
        self.start(missing)
        ready = "ready" if missing is None else "begun"
        try:
            for rank in range(self.size):
                if rank != missing:
                    wait_for(os.path.join(self.trials, f"{ready}-{rank}"), 1500, self.process)
        except TimeoutError:
            self.tell()
            raise

    def start(self, _missing):
        command = f"""cd {self.work} && {getattr(self, self.options.program)()} | dgl-spawn --job {self.name} --host-timeout 10m"""
        self.process = subprocess.Popen([LAB, "exec", "1", "sh", "-c", command], stdout=open(self.work + "/run.jsonl", "w"),
                                        stderr=open(self.work + "/run.err", "w"))

    def tell(self):
        subprocess.run(["tail", "-n", "20", *glob.glob(self.work + "/run*")], check=False)

    def workers(self, command):
        python = self.options.python
        return f"""ipconf-check ip_config.txt | host-probe --workspace /srv/job --python {python} |
            dgl-env --role worker --num-workers {self.options.per_host} --num-omp-threads 1 --env TRIALS={self.trials} {command}"""

    def gloo(self):
        return self.workers(f"-- {self.options.python} {HERE}/gloo.py")

    def perl(self):
        addresses = " ".join(address for address in self.addresses for _ in range(self.options.per_host))
        return self.workers(f"'exec perl {HERE}/ring.pl $RANK {addresses}'")

    def mpi(self):
        subprocess.run(["mpicc", "-O1", "-o", self.work + "/ranks", HERE + "/ranks.c"], check=True)
        return self.workers(f"-- {HERE}/mpi.sh {','.join(self.addresses)} {self.work}/ranks")

    def dgl(self):
        python = self.options.python
        return f"""DGLBACKEND=pytorch {python} {ROOT}/tests/dgl/partition.py --out out --num-parts {len(self.addresses)} >&2 &&
            ipconf-check ip_config.txt | part-map --part-config out/g.json --workspace /srv/job --paths absolute | part-push |
            host-probe --workspace /srv/job --python {python} |
            dgl-env --num-trainers {self.options.per_host} --num-servers 1 --num-omp-threads 1 --env TRIALS={self.trials} \
            -- {python} {HERE}/dgl_rpc.py ip_config.txt data/g.json"""

    def glt_command(self, role, options):
        ports = "training_pg_master_port {master_port}", "master_addr {master_addr}", "node_rank {rank}"
        flags = " ".join(f"--{option}" for option in [*ports, *options])
        return f"--num-omp-threads 1 --env TRIALS={self.trials} -- {self.options.python} {HERE}/glt.py {role} {flags}"

    def glt_pushed(self, hosts):
        """Gives each of the first hosts a part."""
        venv = os.path.dirname(os.path.dirname(self.options.python))
        return f"""{self.options.python} {ROOT}/tests/glt/graph.py graph {hosts} >&2 && head -n {hosts} ip_config.txt >parts.txt &&
            ipconf-check parts.txt | part-map --partitions graph --workspace /srv/job | part-push >parts.jsonl &&
            ipconf-check ip_config.txt | host-probe --venv {venv} | part-map --workspace /srv/job --script-folder {HERE} | part-push"""

    def glt(self):
        worker = self.glt_command("worker", ["num_nodes {num_hosts}", "train_loader_master_port {port:train}"])
        return f"{self.glt_pushed(len(self.addresses))} | dgl-env --role worker {worker}"

    def glt_servers(self):
        """Servers on the first half of the hosts, and a client of each on the others."""
        self.first_host = self.size = len(self.addresses) // 2
        server = self.glt_command("server", ["num_server_nodes {num_hosts}", f"num_client_nodes {self.size}",
                                             "server_client_master_port {port:rpc}"])
        client = self.glt_command("client", ["num_server_nodes {store.num_hosts}", "num_client_nodes {world_size}",
                                             "server_addr {store.master_addr}", "server_client_master_port {store.port:rpc}",
                                             "train_loader_master_port {store.port:train}"])
        return f"""{self.glt_pushed(self.size)} | dgl-env --program store --on 0-{self.size - 1} --env TRAIN={{port:train}} {server} |
            dgl-env --program train --on {self.size}-{2 * self.size - 1} {client}"""

    def path(self, name):
        return os.path.join(self.trials, name)

    def on(self, host, command):
        subprocess.run([LAB, "exec", "1", "ssh", f"h{host + 1}", command], check=True)

    def pid(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def look(self, trial):
        """What is recorded of a trial."""
        stacks, is_whole = self.stacks()
        return {"program": self.options.program, "operation": trial["operation"], "fault": trial["fault"], "culprit": trial["culprit"],
                "size": self.size, "delay_ms": self.options.delay, "load": round(os.getloadavg()[0], 1), "is_whole": is_whole,
                "processes": Recording(stacks).processes}

    def stacks(self):
        """The stacks, and whether all hosts answered."""
        command = f"cd {self.work} && ipconf-check ip_config.txt | dgl-stacks --job {self.name} --connections --format jsonl"
        asked = subprocess.run([LAB, "exec", "1", "sh", "-c", command], stdout=subprocess.PIPE, check=False)
        records = [json.loads(line) for line in asked.stdout.splitlines()]
        # 74: a host could not be reached
        return [one for one in records if one["type"] == "stack"], asked.returncode != 74

    def write_trial(self, words):
        with open(self.path("new"), "w") as file:
            file.write(" ".join(str(word) for word in words))
        os.rename(self.path("new"), self.path(f"trial-{self.number}"))

    def run(self, trial, wait_s):
        """Returns what is recorded of a trial."""
        number, fault = self.number, trial["fault"]
        if fault == "missing":
            time.sleep(wait_s)
            return self.look(trial)
        words = ["operation", "fault", "rank", "elements", "steps", "step_s", "server"]
        told = {**trial, "fault": "lossy" if fault == "lossy_to" else fault}
        self.write_trial([told[word] for word in words])
        self.number += 1
        wait_for(self.path(f"faulty-{number}"))
        # a worker first uses up what its sampler has for it
        time.sleep(wait_s + (4 if fault == "stop_sampler" else 0))
        network = os.path.join(self.work, "..", "losses")
        if fault == "stop_server":
            self.on(trial["server"], f"kill -STOP {self.pid('server-%d' % trial['server'])}")
        elif fault == "cut":
            subprocess.run([LAB, "cut", str(trial["host"] + 1)], check=True)
        elif fault in ("lossy", "lossy_to"):
            with open(network, "w") as file:
                file.write("to" if fault == "lossy_to" else "both")
        if fault in OF_NETWORK + ["stop_server"]:
            # what is lost is certain after some seconds
            time.sleep(6 + wait_s)
        row = self.look(trial)
        open(self.path(f"release-{number}"), "w").close()
        if fault in ("stop", "stop_inside", "stop_sampler"):
            self.on(self.first_host + trial["rank"] // self.options.per_host, f"kill -CONT {self.pid('faulty-%d' % number)}")
        if fault == "cut":
            subprocess.run([LAB, "mend", str(trial["host"] + 1)], check=True)
        elif fault in ("lossy", "lossy_to"):
            os.unlink(network)
        if fault not in FINAL:
            try:
                for rank in range(self.size):
                    wait_for(self.path(f"done-{number}-{rank}"))
            except TimeoutError:
                self.tell()
                raise
        return row

    def end(self):
        self.write_trial(["end"])
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.reap()

    def reap(self):
        command = f"cd {self.work} && ipconf-check ip_config.txt | dgl-reap --job {self.name} --grace 1s"
        subprocess.run([LAB, "exec", "1", "sh", "-c", command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        self.process.wait(60)


class LaunchedJob(Job):
    """A job of an ordinary user that a launcher has started on the hosts, without these tools."""

    WAITS_S = (12, 15)
    # The user nobody. Root looks by ssh; the user, and one that may not read stacks, by a program that becomes that user.
    USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/tmp"]
    LOOKS = {"root": [], "user": USER, "unread": [*USER, "python3", f"{HERE}/unread.py"]}

    def start(self, missing):
        for folder in (self.work, self.trials):
            os.chmod(folder, 0o777)
        variables = {"TRIALS": self.trials, "OMP_NUM_THREADS": 1, "MASTER_ADDR": self.addresses[0], "MASTER_PORT": 29500,
                     "GLOO_SOCKET_IFNAME": "eth0", "PYTHONDONTWRITEBYTECODE": 1, "MISSING": "" if missing is None else missing}
        environment = [f"{name}={value}" for name, value in variables.items()]
        if self.options.launcher == "srun":
            subprocess.run([f"{ROOT}/tests/cluster/slurm.sh", "up"], check=True)
        commands = getattr(self, self.options.launcher)()
        self.launchers = []
        for number, command in enumerate(commands):
            with open(f"{self.work}/run-{number}", "w") as output:
                command = [LAB, "exec", str(number + 1), *self.USER, *environment, *map(str, command)]
                self.launchers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"))
        self.process = self.launchers[0]

    def ranks(self):
        if self.options.program == "gloo":
            return [self.options.python, "-u", f"{HERE}/gloo.py"]
        subprocess.run(["mpicc", "-O1", "-o", self.work + "/ranks", HERE + "/ranks.c"], check=True)
        return [self.work + "/ranks"]

    def torchrun(self):
        nodes = ["--nnodes", len(self.addresses), "--nproc_per_node", self.options.per_host, "--master_addr", self.addresses[0],
                 "--master_port", 29500, "--redirects", 1, "--tee", 1]
        script = self.ranks()[-1]
        return [[self.options.python, "-m", "torch.distributed.run", *nodes, "--node_rank", host, script]
                for host in range(len(self.addresses))]

    def accelerate(self):
        nodes = ["--multi_gpu", "--num_machines", len(self.addresses), "--num_processes", self.size, "--mixed_precision", "no",
                 "--dynamo_backend", "no", "--main_process_ip", self.addresses[0], "--main_process_port", 29500]
        script = self.ranks()[-1]
        return [[self.options.python, "-m", "accelerate.commands.launch", *nodes, "--machine_rank", host, script]
                for host in range(len(self.addresses))]

    def mpirun(self):
        hosts = ",".join(f"{address}:{self.options.per_host}" for address in self.addresses)
        return [["env", f"RANK={host}", f"{HERE}/mpi.sh", hosts, *self.ranks()] for host in range(len(self.addresses))]

    def srun(self):
        return [["srun", f"-N{len(self.addresses)}", f"--ntasks-per-node={self.options.per_host}", *self.ranks()]]

    def look(self, trial):
        """What dgl-why says of what root, the user, and a user without the right to read stacks see."""
        looking = {}
        for who, words in self.LOOKS.items():
            connect = f"--connect '{LAB} exec {{login}} {' '.join(words)}'" if words else ""
            seen = f"{who}-{self.number}.jsonl"
            command = f"ipconf-check ip_config.txt | dgl-stacks --any --format jsonl {connect} >{seen}; dgl-why {seen}"
            # a host of the lab enters the others by their addresses outside of it
            place = [] if words else [LAB, "exec", "1"]
            with open(f"{self.work}/{who}-{self.number}.err", "w") as errors:
                looking[who] = subprocess.Popen([*place, "sh", "-c", command], cwd=self.work, stdout=subprocess.PIPE, stderr=errors)
        row = {"launcher": self.options.launcher, "python": self.options.python, "program": self.options.program,
               "operation": trial["operation"], "fault": trial["fault"], "culprit": trial["culprit"], "looks": {}, "verdicts": []}
        for who, look in looking.items():
            verdict = look.communicate()[0].decode().partition("\n")[0]
            row["looks"][who] = self.answer(trial, verdict)
            row["verdicts"].append(f"{who}: {row['looks'][who]}: {verdict}")
        return row

    def answer(self, trial, verdict):
        """Whether the first line names the culprit, another rank or nobody."""
        found = re.match(r"The job waits: (worker \d+)( on host|: | of \d+ was not found)", verdict)
        named = found and found.group(1)
        return "named" if named and named == trial["culprit"] else "wrong" if named else "nobody"

    def on(self, host, command):
        subprocess.run([LAB, "exec", str(host + 1), *self.USER, "sh", "-c", command], check=True)

    def reap(self):
        """The user's processes, each of which is of this job."""
        for host in range(len(self.addresses)):
            subprocess.run([LAB, "exec", str(host + 1), *self.USER, "sh", "-c", "kill -s KILL -- -1"], check=False)
        if self.options.launcher == "srun":
            subprocess.run([f"{ROOT}/tests/cluster/slurm.sh", "down"], check=True)
        for launcher in self.launchers:
            launcher.wait(60)

    end = reap


def trial_of(chosen, fault, chance, size):
    operations = chosen.operations.split(",") if chosen.operations else OPERATIONS[chosen.program]
    trial = {
        "operation": chance.choice(operations),
        "fault": fault,
        "rank": chance.randrange(size),
        "elements": chance.choice([1, 1000, 30_000] if chosen.program in ("perl", "dgl") else [1, 1000, 300_000]),
        "steps": chance.randrange(5, 15),
        "step_s": 0.05 if chosen.launcher else chance.choice([0.02, 0.05]),
        "server": chance.randrange(min(size, chosen.hosts)),
        # the first one asks, and a delayed link cannot be cut
        "host": chance.randrange(2, chosen.hosts) if chosen.hosts > 2 else 1,
    }
    trial["elements"] = chosen.elements or trial["elements"]
    role, server_role = ROLES.get(chosen.program, ("worker", ""))
    if fault in OF_RANK_0:
        trial["rank"] = 0
    elif fault not in ("slower", "pauses") and fault in HEALTHY + OF_NETWORK + ["stop_server"]:
        trial["rank"] = -1
    if fault in ("slower", "pauses"):
        trial["step_s"] = chance.choice([0.5, 2, 8])
        trial["steps"] = int(60 / trial["step_s"])
    elif fault in ["none", "stop_server"] + OF_NETWORK:
        trial["steps"] = 1000 if chosen.launcher else 100 if chosen.program.startswith("glt") or chosen.delay else 400
    if fault in OF_NETWORK:
        trial["elements"] = max(trial["elements"], 1000)
        trial["host"] = trial["host"] if fault == "cut" else 1
        trial["culprit"] = f"10.77.0.{trial['host'] + 1}"
    elif fault in OF_SERVERS:
        trial["culprit"] = f"{server_role} {trial['server']}"
    elif fault in HEALTHY + ["leave"]:
        trial["culprit"] = None
    else:
        trial["culprit"] = f"{role} {trial['rank']}"
    return trial


def trials(chosen, lab_dir):
    kind = LaunchedJob if chosen.launcher else Job
    chance = random.Random(chosen.seed)
    faults = chosen.faults.split(",")
    job = None
    for number in range(chosen.trials):
        size = chosen.hosts // 2 if chosen.program == "glt_servers" else chosen.hosts * chosen.per_host
        trial = trial_of(chosen, faults[number % len(faults)], chance, size)
        if job and trial["fault"] == "missing":
            job.end()
            job = None
        job = job or kind(chosen, lab_dir, trial["rank"] if trial["fault"] == "missing" else None)
        row = job.run(trial, chance.uniform(*job.WAITS_S))
        with open(chosen.out, "a") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(trial, *row.get("verdicts", []), sep="\n    ", flush=True)
        if trial["fault"] in FINAL:
            job.reap()
            job = None
    if job:
        job.end()


def main():
    chosen = options()
    lab_dir = tempfile.mkdtemp(prefix="dgl-tools-silence-", dir="/var/tmp")
    os.chmod(lab_dir, 0o755)
    os.environ["LAB"] = os.path.join(lab_dir, "lab")
    os.environ["PATH"] = os.environ.get("BIN", os.path.join(ROOT, "target/debug")) + ":" + os.environ["PATH"]
    delayer = None
    try:
        subprocess.run([LAB, "up", str(chosen.hosts), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        if chosen.delay or "lossy" in chosen.faults:
            delay = os.path.join(HERE, "delay.py")
            subprocess.run([LAB, "exec", "2", "python3", delay, "--whole", "eth0"], check=True)
            with open(os.environ["LAB"] + "/pid") as file:
                switch = file.read().strip()
            losses = os.path.join(lab_dir, "losses")
            delayer = subprocess.Popen(["nsenter", "-t", switch, "-n", "python3", delay, "p2", str(chosen.delay), losses])
            time.sleep(2)
        trials(chosen, lab_dir)
    finally:
        if delayer:
            delayer.terminate()
        subprocess.run([LAB, "down"], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(lab_dir, ignore_errors=True)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
main()
