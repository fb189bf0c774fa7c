# Run by the job's own interpreter, 3.5 or later, on its host, in the environment of the process. Neither dgl nor torch is imported:
# that takes seconds. Arguments: the script that will run or `-`, the modules it needs, the host's address, the ports to be bound there,
# the ports to be bound on any address, the ports whose holder is told already, and 1 where the other hosts are to be reached; lists
# have commas. Orders come on descriptor 5, byte by byte, because what stands behind them is for the shell.
import errno, importlib.util, os, select, socket, struct, sys, time

# A connection between hosts takes milliseconds; a packet that is lost once is sent again after 1 s, and then after 2 s more.
PATIENCE_S = 3.5


def say(*words):
    os.write(1, (" ".join(("dgl-tools-look",) + words) + "\n").encode("utf-8", "backslashreplace"))


def listed(text):
    return [word for word in text.split(",") if word]


def look_at_modules(script, modules):
    if sys.path and sys.path[0] == "":
        del sys.path[0]
    if script != "-" and not os.path.isfile(script):
        say("fault no such file:", os.path.abspath(script))
    # a script's own folder is searched first; with -m it is the working directory
    sys.path.insert(0, os.getcwd() if script == "-" else os.path.dirname(os.path.abspath(script)))
    for name in modules:
        try:
            spec = importlib.util.find_spec(name)
            found = spec is not None and spec.origin is not None  # a mere folder of that name has no origin
        except Exception:
            found = False
        if not found:
            say("fault no module named", name, "for", sys.executable, "(Python " + sys.version.split()[0] + ")")


def bound(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as DGL and torch: TIME_WAIT is no owner
    s.bind((address, port))
    return s


def lingers(port):
    """Whether a connection on it is in TIME_WAIT. One of DGL 0.5, which does not set SO_REUSEADDR, lets nobody else have the port."""
    with open("/proc/net/tcp") as file:
        sockets = [line.split() for line in file]
    return any(s[3] == "06" and int(s[1].split(":")[1], 16) == port for s in sockets[1:])


def bindable(address, ports, told):
    sockets = []
    for port in ports:
        try:
            sockets.append(bound(address, int(port)))
        except OSError as e:
            if e.errno == errno.EADDRNOTAVAIL:
                say("fault", address, "is no address of this host")
                break
            if e.errno == errno.EADDRINUSE and lingers(int(port)):
                say("fault the port", port, "is still held by connections of a job that has ended")
            elif port not in told:
                say("fault port", port, "cannot be bound:", os.strerror(e.errno))
    return sockets


def order(wanted):
    while True:
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(5, 1)
            if not byte:
                sys.exit(0)
            line += byte
        words = line.decode().split()
        if words[:1] == [wanted]:
            return words[1:]
        say("alive")  # the launcher's heartbeat wants an answer


def reach(targets):
    """Connects to all at once. What is not accepted by a process is accepted by the kernel, which is all that is asked."""
    poll, waiting = select.poll(), {}

    def done(s, target, error):
        s.close()
        if error:
            say("unreached", target, os.strerror(error))

    for target in targets:
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.setblocking(False)
        # closed by a reset: no TIME_WAIT on a port that a server is about to bind
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ip, _, port = target.partition(":")
        error = s.connect_ex((ip, int(port)))
        if error == errno.EINPROGRESS:
            waiting[s.fileno()] = (s, target)
            poll.register(s, select.POLLOUT)
        else:
            done(s, target, error)
    until = time.monotonic() + PATIENCE_S
    while waiting and time.monotonic() < until:
        say("alive")
        for fd, _ in poll.poll(500):
            poll.unregister(fd)
            s, target = waiting.pop(fd)
            done(s, target, s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    for s, target in waiting.values():
        done(s, target, errno.ETIMEDOUT)


def main():
    script, modules, ip, ports, anywhere, others = sys.argv[1:7]
    told = listed(os.environ.get("DGL_TOOLS_TOLD", ""))
    say("runs")
    look_at_modules(script, listed(modules))
    # bound and let go at once: one after the other, or two of them would be in each other's way
    for s in bindable("0.0.0.0", listed(anywhere), told):
        s.close()
    listeners = bindable(ip, listed(ports), told)
    for s in listeners[1:]:
        s.close()
    if others != "1":
        return
    try:
        os.fstat(5)
        listeners = listeners[:1] + [bound(ip, 0)]
    except OSError:
        return  # a shell that hands nothing on but 0, 1 and 2; or no such address, which was told
    for s in listeners:
        s.listen(4096)
    say("listens", *[str(s.getsockname()[1]) for s in listeners])
    reach(order("reach"))
    say("reached")
    order("enough")


main()
