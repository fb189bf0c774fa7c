# Keeps a detached job: on each host what dgl-spawn is while it is attached, and on the first host what it decides. Python 3.5 or later.
# Reads what boots the host's script and that script (base64), a line each, says `guard PORT` or `fault TEXT`, and goes on in a session of
# its own, out of reach of the connection that brought it. To the script it speaks as dgl-spawn does (see host.sh), and keeps a journal of
# what it hears.
#
# Arguments: KEPT ME HOSTS ROLES GRACE_S LOST_AFTER_S START_LIMIT_S JOB_LIMIT_S GROUP ADDRESS [PORT]
#   KEPT    the folder of this host's part of the job, made of DGL_TOOLS_NEW when no other guard has it; KEPT.lock is locked while one has
#   GROUP   the number of the trainers' group and the port of their rendezvous, with a comma between, or -
#   ROLES   a letter a process: S a server that is waited for, s one that is not, t any other
#   ADDRESS the leader's; with PORT that of the leader to join, without it this is the leader. A limit of 0 is none.
# Between guards, a line each: `nonce HEX`, `join ME HMAC ROLES`, `joined LEADER`, `begin` (all have joined), `alive`,
# `exited ROLE ID STATUS`, `listening ID`, `lost WHY`, `stop SIGNAL`, `end STACKS CAUSE`, `kill`.
# A cause, in the journal of each host: done | process HOST ID STATUS | host HOST WHY | signal NUMBER | time job LIMIT |
# time start LIMIT HOST ID
import errno, fcntl, hashlib, hmac, os, selectors, shutil, signal, socket, subprocess, sys, time

# Servers end by themselves when their clients have said goodbye; those that do not get this long before TERM.
LINGER_S = 5
# A line of a guard is a word or two, or a letter a process; a reason is cut.
LINE = 4000


class Lines:
    """A descriptor's bytes as lines."""

    def __init__(self, read):
        self.read, self.rest = read, b""

    def take(self):
        """Those that came, and whether more can."""
        try:
            data = self.read(65536)
        except socket.timeout:  # an OSError too, and no end
            return [], True
        except OSError as e:
            if e.errno in (errno.EAGAIN, errno.EINTR):
                return [], True
            data = b""
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return [line.decode("utf-8", "replace") for line in lines], bool(data) and len(self.rest) <= LINE


class Peer:
    """Another guard."""

    def __init__(self, sock):
        sock.settimeout(1)
        self.sock, self.lines, self.heard = sock, Lines(sock.recv), time.monotonic()
        self.host, self.nonce = None, os.urandom(16).hex()

    def say(self, text):
        """A peer that takes nothing will be missed by its silence."""
        try:
            self.sock.sendall((text[:LINE] + "\n").encode())
        except OSError:
            pass


def proof(nonce):
    """That one has the job's token, without showing it."""
    return hmac.new(TOKEN.encode(), nonce.encode(), hashlib.sha256).hexdigest()


class Guard:
    def __init__(self, boot, script, listener, leader, early):
        self.listener, self.leader, self.peers = listener, leader, {}
        self.began, self.cause, self.stopped = time.monotonic(), None, set()
        # the script waits for the start; all hosts have joined
        self.ready, self.all_joined = False, False
        # what the leader counts: of hosts that joined, clients that run, processes that run, servers that do not listen
        self.joined, self.clients, self.processes = set(), 0, 0
        self.awaited, self.lingers = set(), None
        self.journal = open(os.path.join(KEPT, "journal"), "a", buffering=1)
        self.selector = selectors.DefaultSelector()
        # signals come as bytes, so that none interrupts a line that is being written
        self.signals, wakes = socket.socketpair()
        for end in (self.signals, wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(wakes.detach())
        # handlers, not SIG_IGN, which the job's processes would inherit; SIGINT too: an `&` of a shell may have had it ignored
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        env = {k: v for k, v in os.environ.items() if k != "DGL_TOOLS_TOKEN"}
        env["DGL_TOOLS_KEPT"] = KEPT
        log = open(os.path.join(KEPT, "script.log"), "ab")
        self.script = subprocess.Popen(
            ["sh", "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=env
        )
        self.heard = Lines(lambda size: os.read(self.script.stdout.fileno(), size))
        self.say("%d\n%s" % (len(script) + 1, script))
        self.selector.register(self.signals, selectors.EVENT_READ)
        self.selector.register(self.script.stdout, selectors.EVENT_READ)
        if leader:
            self.selector.register(leader.sock, selectors.EVENT_READ)
            for line in early:
                self.of_leader(line.split(" "))
        else:
            self.join(ME, ROLES)
            self.selector.register(listener, selectors.EVENT_READ)

    def say(self, text):
        """To the script on this host."""
        try:
            self.script.stdin.write((text + "\n").encode())
            self.script.stdin.flush()
        except OSError:
            pass

    def note(self, text):
        self.journal.write("%d %s\n" % (time.time() * 1000, text))

    def run(self):
        beat, over = 0, None
        while over is None or (self.peers and time.monotonic() < over + LOST_AFTER):
            for key, _ in self.selector.select(1):
                if self.script and key.fileobj is self.script.stdout:
                    lines, more = self.heard.take()
                    for line in lines:
                        self.of_script(line)
                    if not more:
                        self.selector.unregister(self.script.stdout)
                        over = time.monotonic()
                        self.lost("its script has ended")
                elif key.fileobj is self.signals:
                    for number in self.signals.recv(64):
                        if number == signal.SIGTERM:
                            self.stop(number, ME)
                elif key.fileobj is self.listener:
                    self.accept()
                else:
                    self.of_peer(key.fileobj)
            now = time.monotonic()
            if now >= beat + min(5, LOST_AFTER / 6):
                beat = now
                self.say("alive")
                for peer in self.everyone():
                    peer.say("alive")
            self.tick(now)

    def everyone(self):
        return list(self.peers.values()) + ([self.leader] if self.leader else [])

    def of_script(self, line):
        what, _, rest = line.partition(" ")
        if what == "ready":
            self.ready = True
            self.start()
        elif what == "unserved":
            self.lost("its graph servers have ended")
        elif what in ("pid", "listening", "exited", "shm", "over"):
            self.note(line)
            words = rest.split(" ")
            if what == "listening":
                self.tell("listening %s" % words[0])
            elif what == "exited":
                self.tell("exited %s %s %s" % (ROLES[int(words[0])], words[0], words[1]))

    def start(self):
        """Nothing is started before all can be."""
        if self.ready and self.all_joined and self.cause is None:
            self.say("start " + GROUP.replace(",", " "))

    def of_leader(self, words):
        if words[0] == "begin":
            self.all_joined = True
            self.start()
        elif words[0] == "end":
            self.end(words[1] == "1", " ".join(words[2:]))
        elif words[0] == "kill":
            self.say("kill")

    def tell(self, event):
        """To the leader, which may be this one."""
        if self.leader:
            self.leader.say(event)
        else:
            self.event(ME, event.split(" "))

    # --- what the leader does ---

    def accept(self):
        try:
            peer = Peer(self.listener.accept()[0])
        except OSError:
            return
        self.peers[peer.sock] = peer
        self.selector.register(peer.sock, selectors.EVENT_READ)
        peer.say("nonce " + peer.nonce)

    def join(self, host, roles):
        self.joined.add(host)
        self.processes += len(roles)
        self.clients += roles.count("t")
        self.awaited.update((host, str(id)) for id, role in enumerate(roles) if role == "S")
        if len(self.joined) == HOSTS:
            for peer in self.peers.values():
                peer.say("begin")
            self.of_leader(["begin"])

    def of_peer(self, sock):
        peer = self.leader if self.leader and sock is self.leader.sock else self.peers.get(sock)
        if peer is None:
            return
        lines, more = peer.lines.take()
        peer.heard = time.monotonic()
        for line in lines:
            words = line.split(" ")
            if peer is self.leader:
                self.of_leader(words)
            elif peer.host is not None:
                self.event(peer.host, words)
            elif words[0] == "join" and len(words) == 4 and hmac.compare_digest(words[2], proof(peer.nonce)):
                peer.host = words[1]
                peer.say("joined " + ME)
                self.join(peer.host, words[3])
                if self.cause:
                    peer.say("end 0 " + self.cause)
            else:
                more = False
        if not more:
            self.drop(peer, "its guard is gone")

    def drop(self, peer, why):
        self.selector.unregister(peer.sock)
        peer.sock.close()
        if peer is self.leader:
            self.leader = None
            self.end(False, "host %s %s" % (peer.host, why))
        else:
            del self.peers[peer.sock]
            if peer.host is not None:
                self.decide("host %s %s" % (peer.host, why))

    def event(self, host, words):
        if words[0] == "listening":
            self.awaited.discard((host, words[1]))
        elif words[0] == "stop":
            self.stop(int(words[1]), host)
        elif words[0] == "lost":
            self.decide("host %s %s" % (host, " ".join(words[1:])))
        elif words[0] == "exited":
            role, id, status = words[1:4]
            self.processes -= 1
            self.clients -= role == "t"
            # servers that outlive their clients have nothing to fail at
            if status != "0" and self.lingers is None:
                self.decide("process %s %s %s" % (host, id, status))
            elif self.processes == 0:
                self.decide("done")
            elif role == "t" and self.clients == 0 and self.lingers is None:
                self.lingers = time.monotonic() + LINGER_S

    def stop(self, number, host):
        """A signal: the first ends the job, the next one at once. One that comes to the guards of all hosts is one."""
        again = host in self.stopped
        self.stopped.add(host)
        if self.leader:
            self.leader.say("stop %d" % number)
        elif self.cause is None:
            self.decide("signal %d" % number)
        elif again:
            self.say("kill")
            for peer in self.peers.values():
                peer.say("kill")

    def tick(self, now):
        for peer in self.everyone():
            if now >= peer.heard + LOST_AFTER:
                self.drop(peer, "nothing was heard of it for %g s" % LOST_AFTER)
        if self.leader or self.cause:
            return
        took = now - self.began
        if len(self.joined) < HOSTS and took >= LOST_AFTER:
            self.decide("host %s of %d hosts only %d have joined the job" % (ME, HOSTS, len(self.joined)))
        elif self.lingers is not None and now >= self.lingers:
            self.decide("done")
        elif START_LIMIT and took >= START_LIMIT and self.awaited:
            self.decide("time start %g %s %s" % ((START_LIMIT,) + min(self.awaited)), True)
        elif JOB_LIMIT and took >= JOB_LIMIT:
            self.decide("time job %g" % JOB_LIMIT, True)

    def decide(self, cause, stacks=False):
        """The end of the job, and why: the first cause counts."""
        if self.cause is None:
            for peer in self.peers.values():
                peer.say("end %d %s" % (stacks, cause))
            self.end(stacks, cause)

    def lost(self, why):
        if self.cause is None:
            self.tell("lost " + why)

    def end(self, stacks, cause):
        if self.cause is None:
            self.cause = cause.replace("\n", " ")
            self.note("cause " + self.cause)
            self.say("end %g%s" % (GRACE, " ABRT" if stacks else ""))


def joined(sock):
    """The leader, when it has let this one in, and what else it has said."""
    peer = Peer(sock)
    until = time.monotonic() + LOST_AFTER
    while time.monotonic() < until:
        lines, more = peer.lines.take()
        for at, line in enumerate(lines):
            if line.startswith("nonce "):
                peer.say("join %s %s %s" % (ME, proof(line.split(" ")[1]), ROLES))
            elif line.startswith("joined "):
                peer.host = line.split(" ")[1]
                return peer, lines[at + 1:]
        if not more:
            break
    raise OSError(errno.ECONNREFUSED, "it was not let in")


def detach():
    """On in a session of its own, with nothing of the connection's: what waits for its end would wait for ours."""
    sys.stdout.flush()
    guard = os.fork()
    if guard:
        # before whoever follows the job looks for it
        with open(os.path.join(KEPT, "guard"), "w") as file:
            file.write("%d\n" % guard)
        os._exit(0)
    os.setsid()
    null, log = os.open(os.devnull, os.O_RDWR), os.open(os.path.join(KEPT, "guard.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for fd, to in ((0, null), (1, log), (2, log)):
        os.dup2(to, fd)


KEPT, ME = sys.argv[1:3]
HOSTS, ROLES = int(sys.argv[3]), sys.argv[4]
GRACE, LOST_AFTER, START_LIMIT, JOB_LIMIT = [float(word) for word in sys.argv[5:9]]
GROUP, LEADER = sys.argv[9:11]
TOKEN = os.environ["DGL_TOOLS_TOKEN"]
NEW = os.environ.pop("DGL_TOOLS_NEW")


def main():
    os.closerange(3, 256)  # whatever of the connection's the shell has handed on
    boot, script = [sys.stdin.readline().strip() for _ in range(2)]
    # held as long as this guard lives, by whatever it is called from here on
    lock = os.open(KEPT + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        shutil.rmtree(NEW, ignore_errors=True)
        print("named", os.path.basename(os.path.dirname(KEPT)))
        sys.exit(1)
    except OSError:
        pass  # a file system without locks
    shutil.rmtree(KEPT, ignore_errors=True)
    os.rename(NEW, KEPT)
    listener, leader, early = None, None, []
    try:
        if len(sys.argv) == 11:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.bind((LEADER, 0))
            listener.listen(1024)
            print("guard", listener.getsockname()[1])
        else:
            leader, early = joined(socket.create_connection((LEADER, int(sys.argv[11])), LOST_AFTER))
            print("guard -")
    except OSError as e:
        print("fault the guard of the job on the first host cannot be had:", e.strerror or e)
        sys.exit(1)
    detach()
    Guard(boot, script, listener, leader, early).run()


main()
