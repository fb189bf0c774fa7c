# Tells what a detached job has done and does on this host, as its script would have told it (host.sh): the journal and the logs of its
# processes, from their beginnings on, once it is told to `start`. Python 3.5 or later. Arguments: KEPT, and `records` where they are to be
# told first.
#   process JSON | ready          its records
#   was MS                        when the next event was, since 1970
#   cause CAUSE | gone            why the job ends (guard.py); nobody keeps it any more
# From the launcher: start, alive, end (the job), kill (it at once). When nobody listens any more it ends, and the job does not.
import json, os, select, signal, sys, time

# The launcher's script takes lines of 4000 bytes, with the head of each.
PIECE = 3900
# A log is looked at so often; one that grows fast is read without a pause.
PAUSE_S = 0.2
BLOCK = 1 << 18

KEPT = sys.argv[1]


def say(*lines):
    data = b"".join(line + b"\n" for line in lines)
    while data:
        data = data[os.write(1, data):]


def read(name):
    with open(os.path.join(KEPT, name), "rb") as file:
        return file.read()


class Log:
    """A file that grows."""

    def __init__(self, name):
        self.path, self.file, self.rest = os.path.join(KEPT, name), None, b""

    def lines(self):
        """Whole lines that are new; whether there may be more at once."""
        if self.file is None:
            try:
                self.file = open(self.path, "rb", buffering=0)
            except FileNotFoundError:
                return [], False
        data = self.file.read(BLOCK)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return lines, len(data) == BLOCK

    def last(self):
        return [self.rest] if self.rest else []


def output(id, lines):
    """As a relay writes them: of a long one all pieces but the last are marked."""
    for line in lines:
        while len(line) > PIECE:
            say(b"O %d %s" % (id, line[:PIECE]))
            line = line[PIECE:]
        yield b"o %d %s" % (id, line)


def guard():
    """The process that keeps the job; its number may be another's by now."""
    try:
        pid = int(read("guard"))
        wanted = b"DGL_TOOLS_TOKEN=guard-" + read("token").strip()
        with open("/proc/%d/environ" % pid, "rb") as file:
            return pid if wanted in file.read().split(b"\0") else None
    except (OSError, ValueError):
        return None


class Launcher:
    def __init__(self):
        self.rest = b""

    def words(self, pause):
        """What it says within so long; ends the program when it is gone."""
        if not select.select([0], [], [], pause)[0]:
            return []
        data = os.read(0, 4096)
        if not data:
            sys.exit(0)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return [line.split(b" ")[0] for line in lines]


def main():
    records = read("processes").splitlines()
    launcher = Launcher()
    if "records" in sys.argv[2:]:
        say(*[b"process " + line for line in records] + [b"ready"])
    words = []
    while not set(words) & {b"start", b"end", b"kill"}:
        words = launcher.words(60)
        say(b"alive")
    journal = Log("journal")
    logs = [Log("%s-%d.log" % (p["role"], p["rank"])) for p in (json.loads(line.decode()) for line in records)]
    looked, kept, over = 0, True, False
    while True:
        for word in words:
            pid = guard() if word in (b"end", b"kill") else None
            if pid is not None:
                os.kill(pid, signal.SIGTERM)
            elif word == b"alive":
                say(b"alive")
        # what was written before the journal's end is read after it, and what was written before its guard went too
        gone = not kept
        if kept and time.monotonic() >= looked + 1:
            looked, kept = time.monotonic(), guard() is not None
        events, more = journal.lines()
        for line in events:
            time_ms, _, event = line.partition(b" ")
            say(b"was " + time_ms, event)
            over = over or event.startswith(b"over")
        for id, log in enumerate(logs):
            lines, grows = log.lines()
            if lines:
                say(*output(id, lines))
            more = more or grows
        if (over or gone) and not more:
            break
        words = launcher.words(0 if more else PAUSE_S)
    for id, log in enumerate(logs):
        for line in output(id, log.last()):
            say(line)
    if not over:
        say(b"gone")


try:
    main()
except BrokenPipeError:
    pass
