"""Prints what a process of the rank printed elsewhere, and ends as that one did.

The lines are those of RANK.txt, or else of all.txt. A line `#! sleep 2` waits, `#! stdout` and `#! stderr` choose
where the next lines go, `#! exit 1` ends with that status, and `#! signal ABRT` ends by that signal.
"""
import os
import resource
import signal
import sys
import time

rank = os.environ["RANK"]
name = rank + ".txt"
out = sys.stderr
for line in open(name if os.path.exists(name) else "all.txt", encoding="utf-8"):
    line = line.rstrip("\n").replace("{rank}", rank).replace("{local_rank}", os.environ.get("LOCAL_RANK", rank))
    word, _, value = line[3:].partition(" ") if line.startswith("#! ") else ("", "", "")
    if word == "sleep":
        time.sleep(float(value))
    elif word in ("stdout", "stderr"):
        out = getattr(sys, word)
    elif word == "exit":
        os._exit(int(value))
    elif word == "signal":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = getattr(signal, "SIG" + value)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    else:
        print(line, file=out, flush=True)
