"""What the programs of trials.py share: each goes through trials, one after the other.

A trial is a file trial-N in the directory TRIALS, a line of words: the operation that all ranks
repeat; what goes wrong before one repetition, in one rank or in all (all_...); that rank,
or -1; the elements of the data; how often it is repeated until then, and the seconds between two repetitions;
the server that a request is to keep busy, or -1. When it goes wrong, the rank writes faulty-N; it
goes on when release-N is there. Each rank writes done-N-RANK at the end of a trial. The word `end`
ends the program."""

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

FOLDER = os.environ["TRIALS"]
# These go wrong outside the program: trials.py does it, or nothing at all. They take longer.
OUTSIDE = ["none", "slower", "pauses", "cut", "lossy", "stop_server"]
# All others would go on for longer: what they do not wait for, they must not seem to wait for.
MORE_STEPS = 20


def path(name):
    return os.path.join(FOLDER, name)


def wait_for(name):
    while not os.path.exists(path(name)):
        time.sleep(0.02)


def write(name, text=""):
    with open(path(f"{name}.{os.getpid()}"), "w") as file:
        file.write(text)
    os.rename(path(f"{name}.{os.getpid()}"), path(name))


def load(queue, name):
    wait_for(name)
    queue.put(None)


def save_until(released, rank):
    """Writes checkpoints."""
    while not os.path.exists(path(released)):
        with open(path(f"checkpoint-{rank}"), "wb") as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        time.sleep(0.05)


HOLDER = """import fcntl, os, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.1)"""


def wait_for_lock(released):
    """A process outside the job holds the lock of a file."""
    lock = path("lock-" + released)
    command = [sys.executable, "-c", HOLDER, lock, path(released)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, env={}, start_new_session=True)
    holder.stdout.readline()
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
    holder.wait()


def wait_for_thread(released):
    """A thread of this process holds a lock."""
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lambda: (wait_for(released), lock.release()), daemon=True).start()
    lock.acquire()


# What a rank does before it passes on what it has received.
before_passing_on = []


def pass_on():
    """Between receiving and sending in a ring or a pipeline."""
    while before_passing_on:
        before_passing_on.pop()()


def go_wrong(fault, number, rank):
    released = f"release-{number}"
    if fault == "stop_sampler":
        sampler = multiprocessing.active_children()[0]
        write(f"faulty-{number}", str(sampler.pid))
        os.kill(sampler.pid, signal.SIGSTOP)
        return
    if rank == 0 or not fault.startswith("all_"):
        write(f"faulty-{number}", str(os.getpid()))
    fault = fault.replace("all_", "")
    if fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "leave":
        os._exit(0)
    elif fault == "sleep":
        wait_for(released)
    elif fault == "lock":
        wait_for_lock(released)
    elif fault == "mutex":
        wait_for_thread(released)
    elif fault in ("spin", "evaluate"):
        while not os.path.exists(path(released)):
            sum(range(10000))
    elif fault == "save":
        save_until(released, rank)
    elif fault == "load":
        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        child = fork.Process(target=load, args=(queue, released))
        child.start()
        queue.get()
        child.join()
    elif fault == "stop_inside":
        # in the middle of what comes next
        threading.Timer(0.004, lambda: os.kill(os.getpid(), signal.SIGSTOP)).start()
    else:
        sys.exit(f"no fault {fault}")


def trials():
    """The words of each trial, with its number."""
    number = 0
    while True:
        wait_for(f"trial-{number}")
        with open(path(f"trial-{number}")) as file:
            words = file.read().split()
        if words[0] == "end":
            return
        yield number, words
        number += 1


def steps(rank, barrier=None, hold=None):
    """Yields the operation and its elements each time that they are to be repeated. `barrier` is the
    operation that a rank does in place of all others', and in which all meet at the end; `hold`
    keeps a server busy."""
    write(f"ready-{rank}")
    for number, (operation, fault, faulty, elements, count, step_s, server) in trials():
        is_faulty = fault not in OUTSIDE and int(faulty) in (rank, -1)
        for step in range(int(count) + MORE_STEPS):
            # each has a little else to do, and not all the same
            slower = 1.2 if fault == "slower" and int(faulty) == rank else 1
            time.sleep(float(step_s) * slower * (0.8 + 0.4 * ((rank * 7 + step * 3) % 10) / 10))
            if fault == "pauses" and int(faulty) == rank and step % 5 == 0:
                time.sleep(6)
            if step == 0 and fault in OUTSIDE and rank == 0:
                write(f"faulty-{number}")
            is_last = step + 1 == int(count)
            if is_last and is_faulty and fault == "other":
                write(f"faulty-{number}", str(os.getpid()))
                yield barrier, 1
            elif is_last and is_faulty and fault == "hold":
                write(f"faulty-{number}", str(os.getpid()))
                hold(int(server), f"release-{number}")
                yield operation, int(elements)
            else:
                if is_last and is_faulty and fault == "keep":
                    before_passing_on.append(lambda: go_wrong("sleep", number, rank))
                elif is_last and is_faulty:
                    go_wrong(fault, number, rank)
                yield operation, int(elements)
        # where data goes one way only, the first ranks may have done theirs long before the last
        if barrier:
            yield barrier, 1
        write(f"done-{number}-{rank}")
