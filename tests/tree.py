#!/usr/bin/env python3
"""A process of a job, as far as the operating system sees one: tree.py server|trainer direct|torchrun|daemon|loud NAME FOLDER

A server listens on $PORT. Both map a file in /dev/shm that nobody unlinks. Each exits with 1 when FOLDER/NAME-ROLE appears, its last
words on stderr. `torchrun` has its workers in sessions of their own and gives their status on; `daemon` has a child that left the
session, its directory and its streams behind and ignores TERM; `loud` writes 0.5 MB/s.
"""

import mmap
import os
import signal
import socket
import subprocess
import sys
import time

role, tree, name, folder = sys.argv[1:5]


def share():
    """Keeps a file in /dev/shm mapped for as long as this process lives."""
    file = os.open(f"/dev/shm/{name}-{role}-{os.getpid()}", os.O_CREAT | os.O_RDWR)
    os.ftruncate(file, 4096)
    shared = mmap.mmap(file, 4096)
    os.close(file)
    return shared


def work():
    shared = share()
    if role == "server":
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", int(os.environ["PORT"])))
        listener.listen()
    while not os.path.exists(f"{folder}/{name}-{role}"):
        time.sleep(0.1)
        if tree == "loud" and role == "trainer":
            sys.stdout.write(("x" * 999 + "\n") * 50)
    print(f"the last words of {name} {role}", file=sys.stderr, flush=True)
    shared.close()
    sys.exit(1)


def daemonise():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    for stream in range(3):
        os.dup2(os.open("/dev/null", os.O_RDWR), stream)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    shared = share()
    while shared:
        time.sleep(60)


def torchrun():
    workers = [subprocess.Popen([sys.executable, __file__, role, "direct", name, folder], start_new_session=True) for _ in range(2)]
    while all(worker.poll() is None for worker in workers):
        time.sleep(0.05)
    failed = next(worker.returncode for worker in workers if worker.returncode is not None)
    for worker in workers:
        worker.kill()
    sys.exit(failed)


if tree == "torchrun" and role == "trainer":
    torchrun()
if tree == "daemon" and role == "trainer":
    daemonise()
work()
