# Asked of the job's interpreter on a host, 3.5 or later. Neither dgl nor torch is imported: that takes seconds and may fail.
import importlib.util, os, platform, sys

os.environ.pop("DGL_TOOLS_QUESTION", None)
sys.path = [path for path in sys.path if path]


def say(*words):
    print("dgl-tools-fact", *words)


def version(name):
    spec = importlib.util.find_spec(name)
    # a mere folder of that name has no origin
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
