# Asked of the job's interpreter on a host, of any version. Neither dgl nor torch is imported: that takes seconds and may fail.
import os, sys

os.environ.pop("DGL_TOOLS_QUESTION", None)
# set for a job that is about to start: the script that will run, empty if that is not known
script = os.environ.pop("DGL_TOOLS_SCRIPT", None)
# where the job searches for modules; nothing is imported from the script's own directory
PATH = list(sys.path)


def say(*words):
    line = " ".join(("dgl-tools-fact",) + words) + "\n"
    # Python 2 has bytes already
    os.write(1, line if isinstance(line, bytes) else line.encode("utf-8", "backslashreplace"))


say("python", sys.version.split()[0])
if sys.executable:
    say("executable", sys.executable)
try:
    import ast, importlib.machinery
    from importlib.util import find_spec
except ImportError:
    # older than 3.4, or without a part of its library: which modules it finds stays unknown
    sys.exit()

NAMES = ("dgl", "torch")


def imported(path, folder, seen):
    # What a script and the modules beside it import whenever they run: not in a function, a condition or a try.
    seen.add(path)
    with open(path, "rb") as file:
        body = ast.parse(file.read()).body
    names = []
    for node in body:
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names += [node.module] + [node.module + "." + name.name for name in node.names]
    found = set(name.split(".")[0] for name in names).intersection(NAMES)
    for name in names:
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            beside = os.path.join(folder, *parts[:count])
            for file in (beside + ".py", os.path.join(beside, "__init__.py")):
                if file not in seen and len(seen) < 1000 and os.path.isfile(file):
                    found |= imported(file, folder, seen)
    return found


if script is not None:
    if script:
        try:
            say("imports", *sorted(imported(script, os.path.dirname(script), set())))
        except Exception:
            pass
    # a script's own directory is searched first; for a module it is the working directory
    PATH.insert(0, os.path.dirname(os.path.abspath(script)) if script else os.getcwd())


def version(name):
    # the second asks other finders, too, such as those of editable packages
    specs = importlib.machinery.PathFinder.find_spec(name, PATH), find_spec(name)
    # a mere folder of that name has no file; up to 3.6 its origin is a word
    if not any(spec and spec.has_location for spec in specs):
        return None
    try:
        from importlib import metadata

        for dist in metadata.distributions(name=name, path=PATH):
            return dist.version
        for dist in metadata.distributions(path=PATH):
            if (dist.metadata["Name"] or "").lower().replace("_", "-").startswith(name + "-cu"):
                return dist.version
    except Exception:
        pass
    return "unknown"


say("modules")
for name in NAMES:
    try:
        found = version(name)
    except Exception:
        found = None
    if found:
        say(name, found)
