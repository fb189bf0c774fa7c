#!/usr/bin/env python3
"""Runs the tools and host-agent below strace, which lets one system call after another fail, and checks what they make of it.

    faults.py [--minutes M] [--seed S] [--sample K] [--only TEXT]...

Three pipelines are tried: a push, a pull, and a job from its start to its end. For each kind of call and error, the first call of each thread
fails, then the second, up to the fiftieth, and then some of the later ones, chosen by the seed. Disks that are full in the middle of a write
are real: a tmpfs of one size after another. With --sample only K cases are tried, chosen by the seed.

Whatever fails: no half file has a final name, nothing is left running, status 0 means that all was done, any other status comes with a message
that says what is wrong and where, and without the fault the same pipeline then succeeds on what is there. A call that was interrupted (EINTR)
is no failure. Exit status 1: a check failed."""
import argparse
import collections
import concurrent.futures
import errno
import filecmp
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOLS = os.environ.get("TOOLS") or os.path.join(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"), "debug")
MOST = 50
LATER = 3
LIMIT = 120
LOADER = "error while loading shared libraries"
OPENING = ["openat", "pipe2", "socket", "pidfd_open", "eventfd2", "epoll_create1"]
STORING = ["openat", "mkdir", "mkdirat", "pwrite64", "fallocate", "ftruncate", "rename", "renameat", "renameat2", "fsync"]
FAULTS = {
    "EMFILE": OPENING,
    "ENOSPC": STORING,
    "EDQUOT": STORING,
    "EIO": ["openat", "pread64", "pwrite64", "getdents64", "statx", "fstat", "newfstatat", "fsync", "renameat", "unlinkat", "ftruncate"],
    "EAGAIN": ["clone", "clone3", "fork", "vfork"],
    "EINTR": ["read", "write", "poll", "ppoll", "epoll_wait", "wait4", "waitid", "recvfrom", "sendto", "accept4", "connect", "clock_nanosleep"],
}
FILES = {"empty": 0, "small": 1000, "folder/other": 70_000, "folder/large": 3_000_000}

Case = collections.namedtuple("Case", "pipeline error call number")


def run(command, folder, stdin=os.devnull):
    """How a command ends, and what it has written; the status is None if it does not end."""
    environment = dict(os.environ, PATH=TOOLS + ":" + os.environ["PATH"], DGL_TOOLS_CONNECT="local", HOME=folder, LC_ALL="C")
    environment.pop("DGL_TOOLS_AGENT_DIR", None)
    with open(os.path.join(folder, stdin), "rb") as source:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        return None, out.decode(errors="replace"), err.decode(errors="replace")
    return process.returncode, out.decode(errors="replace"), err.decode(errors="replace")


def shell(script, folder):
    return run(["sh", "-c", script], folder)


def write_files(folder):
    for name, size in FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(random.Random(name).randbytes(size))


def unlike(source, copy, must_be_all):
    """What is wrong with a copy of the files."""
    for name in FILES:
        path = os.path.join(copy, name)
        if os.path.lexists(path):
            if not filecmp.cmp(os.path.join(source, name), path, shallow=False):
                return f"half a file has its final name: {name}"
        elif must_be_all:
            return f"status 0, and this is missing: {name}"
    return None


class Push:
    def prepare(self, folder):
        write_files(folder + "/files")
        extra = " ".join(f"--extra files/{name}:{name}" for name in FILES)
        status, _, err = shell(f"echo 127.0.0.1 | ipconf-check | part-map --workspace {folder}/there {extra} >plan", folder)
        assert status == 0, err

    def command(self, folder):
        return ["part-push"], "plan"

    def check(self, folder, status, out):
        return unlike(folder + "/files", folder + "/there", status == 0)


class Pull:
    def prepare(self, folder):
        write_files(folder + "/there")
        status, _, err = shell("echo 127.0.0.1 | ipconf-check >hosts", folder)
        assert status == 0, err

    def command(self, folder):
        return ["part-pull", "--workspace", folder + "/there", "--to", "got", "**"], "hosts"

    def check(self, folder, status, out):
        got = folder + "/got"
        if os.path.isdir(got + "/h0"):
            got += "/h0"
        return unlike(folder + "/there", got, status == 0)


class Job:
    def prepare(self, folder):
        status, _, err = shell(f"echo 127.0.0.1 | ipconf-check | dgl-env --role worker --num-workers 2 -- {TOOLS}/host-agent --version >job", folder)
        assert status == 0, err

    def command(self, folder):
        return ["dgl-spawn", "--job", os.path.basename(folder), "--log-dir", "logs", "--format", "jsonl"], "job"

    def check(self, folder, status, out):
        if status != 0:
            return None
        try:
            with open(folder + "/logs/run.jsonl") as file:
                written = file.read()
        except OSError as error:
            return f"status 0, and run.jsonl cannot be read: {error}"
        for what, text in ("stdout", out), ("run.jsonl", written):
            records = [json.loads(line) for line in text.splitlines()]
            lines = [record for record in records if record["type"] == "output" and record["line"].startswith("host-agent ")]
            ended = [record for record in records if record["type"] == "exited" and record.get("code") == 0]
            if (len(lines), len(ended)) != (2, 2):
                return f"status 0, and {what} has {len(lines)} lines and {len(ended)} ends"
        for rank in 0, 1:
            with open(f"{folder}/logs/worker-{rank}.log") as file:
                if not file.read().startswith("host-agent "):
                    return f"status 0, and worker-{rank}.log lacks its line"
        return None


PIPELINES = {"push": Push(), "pull": Pull(), "job": Job()}


def names_the_place(err, error):
    return bool(re.search(r"\w+: ", err)) and (os.strerror(getattr(errno, error)) in err or "host 0" in err or "/" in err or "os error" in err)


def complain(pipeline, folder, error, status, out, err):
    if status is None:
        return f"it had not ended after {LIMIT} s, or left something running"
    if status < 0 or status in (101, 134, 139) or "panicked" in err:
        return f"it died: status {status}"
    if error == "EINTR" and status != 0:
        return f"an interrupted call made it fail: status {status}"
    if status != 0 and not names_the_place(err, error):
        return f"status {status} without a message that names the place"
    return pipeline.check(folder, status, out)


def again(pipeline, folder):
    """On what the failure has left, without a fault."""
    command, stdin = pipeline.command(folder)
    status, out, err = run(command, folder, stdin)
    if status != 0:
        return f"afterwards it fails without a fault: status {status}: {err[-300:]}"
    wrong = pipeline.check(folder, status, out)
    return wrong and f"afterwards, without a fault: {wrong}"


def attempt(case, keep=False):
    """Whether the call was there to fail, and what was wrong then."""
    pipeline = PIPELINES[case.pipeline]
    folder = tempfile.mkdtemp(prefix="dgl-tools-faults-")
    try:
        pipeline.prepare(folder)
        log = folder + "/strace"
        if case.call == "tmpfs":
            return True, on_full_disk(pipeline, folder, case)
        inject = f"inject={case.call}:error={case.error}:when={case.number}"
        strace = ["strace", "-f", "-qq", "-o", log, "-e", f"trace={case.call}", "-e", inject]
        command, stdin = pipeline.command(folder)
        status, out, err = run(strace + command, folder, stdin)
        with open(log, errors="replace") as file:
            injected = "INJECTED" in file.read()
        if not injected:
            return False, None
        # the loader of dynamic programs: not ours, and such a read is never interrupted
        if case.error == "EINTR" and LOADER in err:
            return True, None
        wrong = complain(pipeline, folder, case.error, status, out, err) or again(pipeline, folder)
        return True, wrong and f"{wrong}\n      {err.strip()[-600:]}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def on_full_disk(pipeline, folder, case):
    """The target on a tmpfs on which so many pages of 4 KiB are free."""
    target = {"push": "there", "pull": "got", "job": "logs"}[case.pipeline]
    pages = case.number
    script = f"mkdir -p {target} && mount -t tmpfs -o size={pages * 4}k,mode=755 none {target} || exit 99; "
    script += f'"$@"; status=$?; cp -r {target} copy; exit $status'
    command, stdin = pipeline.command(folder)
    status, out, err = run(["unshare", "-m", "sh", "-c", script, "sh", *command], folder, stdin)
    shutil.rmtree(f"{folder}/{target}", ignore_errors=True)
    shutil.move(f"{folder}/copy", f"{folder}/{target}")
    wrong = complain(pipeline, folder, "ENOSPC", status, out, err) or again(pipeline, folder)
    return wrong and f"{wrong}\n      {err.strip()[-600:]}"


def exists(call):
    return subprocess.run(["strace", "-qq", "-e", f"trace={call}", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def cases(seed):
    """All, in the order in which they are tried: the first calls of every kind, then the second."""
    chance = random.Random(seed)
    kinds = [(pipeline, error, call) for pipeline in PIPELINES for error, calls in FAULTS.items() for call in calls if exists(call)]
    numbers = list(range(1, MOST + 1)) + sorted(chance.sample(range(MOST + 1, 1000), LATER))
    for number in numbers:
        for kind in kinds:
            yield Case(*kind, number)
        if os.geteuid() == 0:
            for pipeline, pages in ("push", 16), ("pull", 16), ("job", 1):
                yield Case(pipeline, "ENOSPC", "tmpfs", 1 + (number - 1) * pages if number <= MOST else number * pages)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only", action="append", help="cases whose name has this text, such as push:EIO:openat:3; may be repeated")
    args = parser.parse_args()
    if not shutil.which("strace"):
        print("faults.py: there is no strace\n  fix: install it", file=sys.stderr)
        return 69
    until = time.monotonic() + args.minutes * 60
    wanted = [case for case in cases(args.seed) if any(text in ":".join(map(str, case)) + ":" for text in args.only or [""])]
    if args.sample:
        wanted = [case for case in wanted if case.number <= 6]
        random.Random(args.seed).shuffle(wanted)
    tried, failed, over = collections.Counter(), collections.defaultdict(list), {}

    def one(case):
        kind = case[:3]
        if time.monotonic() > until or over.get(kind, MOST + 1000) < case.number:
            return
        if args.sample and sum(tried.values()) >= args.sample:
            return
        injected, wrong = attempt(case)
        if not injected:
            over[kind] = min(over.get(kind, case.number), case.number)
            return
        tried[kind] += 1
        if wrong:
            failed[kind].append(case)
            print(f"FAULT {':'.join(map(str, case))}: {wrong}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as pool:
        for result in [pool.submit(one, case) for case in wanted]:
            result.result()
    print(f"{'pipeline':<10}{'error':<9}{'call':<17}{'tried':>6}{'faults':>8}")
    for kind, count in sorted(tried.items()):
        print(f"{kind[0]:<10}{kind[1]:<9}{kind[2]:<17}{count:>6}{len(failed[kind]):>8}")
    faults = sum(map(len, failed.values()))
    print(f"{sum(tried.values())} calls failed in {len(tried)} kinds, seed {args.seed}: {faults} faults")
    return 1 if faults or not tried else 0


if __name__ == "__main__":
    sys.exit(main())
