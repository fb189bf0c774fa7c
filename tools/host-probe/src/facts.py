# Run by the job's interpreter on a host, 3.5 or later. Neither dgl nor torch is imported: that takes seconds and may fail.
import importlib.util, platform, socket, struct, sys
sys.path = [p for p in sys.path if p]
def say(*words):
    print("dgl-tools-fact", *words)
def version(name):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    try:
        from importlib import metadata
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            for dist in metadata.distributions():
                if (dist.metadata["Name"] or "").lower().replace("_", "-").startswith(name + "-cu"):
                    return dist.version
    except Exception:
        pass
    return "unknown"
say("python", platform.python_version())
if sys.executable:
    say("executable", sys.executable)
for name in ("dgl", "torch"):
    try:
        found = version(name)
    except Exception:
        found = None
    if found:
        say(name, found)
try:
    import fcntl
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _, card in socket.if_nameindex():
        try:
            answer = fcntl.ioctl(s.fileno(), 0x8915, struct.pack("256s", card.encode()[:15]))
            say("pycard", card, socket.inet_ntoa(answer[20:24]))
        except OSError:
            pass
except Exception:
    pass
