#!/usr/bin/env python3
"""A stand-in for `kubectl exec` and `docker exec`, by the name it is called with: no cluster of either, only their calling convention.

    kubectl exec -i POD -- COMMAND ARG...
    docker exec -i CONTAINER COMMAND ARG...

A pod or container is a host of host-lab (h1, h2 ...; $LAB). As with the real ones the command belongs to the engine: it outlives this
program, and then sees no more than the end of its stdin. Words and statuses are those of kubectl 1.29 and docker 24.
"""

import os
import subprocess
import sys
import threading

engine = os.path.basename(sys.argv[0])
lab = os.environ["LAB"]
here = os.path.dirname(os.path.realpath(__file__))
cluster = os.path.join(here, "../../tools/host-lab/host-lab")


def fail(words):
    print(words, file=sys.stderr)
    sys.exit(1)


def command():
    """The name of the host, and what to run there."""
    words = sys.argv[1:]
    if engine == "kubectl" and words[:2] == ["exec", "-i"] and words[3:4] == ["--"] and words[4:]:
        return words[2], words[4:]
    if engine == "docker" and words[:2] == ["exec", "-i"] and words[3:]:
        return words[2], words[3:]
    fail(f"error: {engine} {' '.join(words)}: no such use is stood in for")


def copy(source, target):
    """Until the end of the source, or of those who read the target."""
    try:
        while piece := os.read(source, 1 << 16):
            while piece:
                piece = piece[os.write(target, piece) :]
    except OSError:
        pass
    os.close(target)


name, words = command()
if not os.path.isdir(f"{lab}/{name}/srv"):
    fail(
        f'Error from server (NotFound): pods "{name}" not found'
        if engine == "kubectl"
        else f"Error response from daemon: No such container: {name}"
    )
if subprocess.run([cluster, "exec", name[1:], "true"], capture_output=True).returncode != 0:
    fail(
        'error: unable to upgrade connection: container not found ("trainer")'
        if engine == "kubectl"
        else f"Error response from daemon: container {name} is not running"
    )
if engine == "kubectl":
    print('Defaulted container "trainer" out of: trainer, proxy', file=sys.stderr, flush=True)

there = subprocess.Popen(
    [cluster, "exec", name[1:], *words],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    start_new_session=True,
    cwd="/",
)
threading.Thread(target=copy, args=(0, os.dup(there.stdin.fileno())), daemon=True).start()
there.stdin.close()
back = [
    threading.Thread(target=copy, args=(stream.fileno(), os.dup(number)))
    for number, stream in [(1, there.stdout), (2, there.stderr)]
]
for thread in back:
    thread.start()
for thread in back:
    thread.join()
status = there.wait()
status = 128 - status if status < 0 else status
if engine == "kubectl" and status:
    print(f"command terminated with exit code {status}", file=sys.stderr, flush=True)
os._exit(status)
