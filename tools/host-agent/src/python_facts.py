# Asked of the job's interpreter on a host, 3.5 or later. Neither dgl nor torch is imported: that takes seconds and may fail.
import importlib.util, os, platform, sys

os.environ.pop("DGL_TOOLS_QUESTION", None)
# set for a job that is about to start: the script that will run, empty for a module
script = os.environ.pop("DGL_TOOLS_SCRIPT", None)
sys.path = [path for path in sys.path if path]


def say(*words):
    line = " ".join(("dgl-tools-fact",) + words) + "\n"
    os.write(1, line.encode("utf-8", "backslashreplace"))


if script is not None:
    if script and not os.path.isfile(script):
        say("no_script", os.path.abspath(script))
    # a script's own folder is searched first; for a module it is the working directory
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)) if script else os.getcwd())


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
