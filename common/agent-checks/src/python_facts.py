# Asked of the job's interpreter on a host, 3.5 or later. Neither dgl nor torch is imported: that takes seconds and may fail.
import ast, importlib.machinery, importlib.util, os, platform, sys

os.environ.pop("DGL_TOOLS_QUESTION", None)
# set for a job that is about to start: the script that will run, empty if that is not known
script = os.environ.pop("DGL_TOOLS_SCRIPT", None)
# where the job searches for modules; nothing is imported from the script's own directory
PATH = list(sys.path)


def say(*words):
    line = " ".join(("dgl-tools-fact",) + words) + "\n"
    os.write(1, line.encode("utf-8", "backslashreplace"))


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
    specs = importlib.machinery.PathFinder.find_spec(name, PATH), importlib.util.find_spec(name)
    # a mere folder of that name has no origin
    if not any(spec and spec.origin for spec in specs):
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


say("python", platform.python_version())
if sys.executable:
    say("executable", sys.executable)
for name in NAMES:
    try:
        found = version(name)
    except Exception:
        found = None
    if found:
        say(name, found)
