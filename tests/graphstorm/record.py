"""Writes down what GraphStorm's own launchers would run: record.py VERSION=FOLDER... >launcher.jsonl

A FOLDER is what `pip download --no-deps graphstorm==VERSION` brought, unpacked. Its launchers themselves run, on two hosts of 16
processors that they do not reach: ssh, the search for a port and the process that cleans up are left out. Where versions run the same
it is written once. /ws is the workspace, GS the directory of the launchers, PYTHON the interpreter."""

import contextlib
import importlib.util
import io
import json
import os
import queue
import sys
import tempfile
import types
from unittest import mock

JOB = "--workspace /ws --num-trainers 2 --part-config data/g.json --ip-config ip.txt --cf c.yaml"
TASKS = [
    "node_classification",
    "node_regression",
    "edge_classification",
    "edge_regression",
    "link_prediction",
    "multi_task_learning",
    "gen_node_embedding",
    "gnn_distillation",
]
LINES = [f"gs_{task} {JOB}{more}" for task in TASKS for more in ["", " --inference", " --lm-encoder-only", " --inference --lm-encoder-only"]]
LINES += [
    f"gs_node_classification {JOB} --save-embed-path emb --restore-model-path=model --inference --save-prediction-path /nfs/p",
    f"gs_link_prediction {JOB} --graph-format csr,coo --num-servers 2 --num-samplers 1 --num-server-threads 3 --num-omp-threads 5",
    f"gs_link_prediction --lr 0.1 {JOB} --extra-envs A=1 B=x=y --ssh-port 2222 --ssh-username bob --verbose true --exclude-training-targets False",
    f"gs_node_regression {JOB} --do-nid-remap false --logging-level debug",
    f"gs_edge_regression {JOB} --with-shared-fs False --output-chunk-size 77 --do-nid-remap 1",
    f"gs_multi_task_learning {JOB} --graph-format=csr --num-servers=4 --preserve-input true",
    "launch --workspace /ws --num-trainers 3 --part-config /ws/data/g.json --ip-config /ws/ip.txt code/own.py --cf c.yaml --num-trainers 9 x",
]


def launched(folder, line, workspace):
    """What a launcher starts, a list of host, port, user and shell text."""
    run = os.path.join(folder, "graphstorm", "run")
    package = types.ModuleType("of_graphstorm")
    package.__path__ = [run]
    for name in [name for name in sys.modules if name.startswith("of_graphstorm")]:
        del sys.modules[name]
    sys.modules["of_graphstorm"] = package
    module, *words = line.replace("/ws", workspace).split(" ")

    def load(name):
        spec = importlib.util.spec_from_file_location(f"of_graphstorm.{name}", os.path.join(run, f"{name}.py"))
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = loaded
        spec.loader.exec_module(loaded)
        return loaded

    launch = load("launch")
    seen = []

    def execute_remote(cmd, state_q, ip, port, username=""):
        cmd = cmd.replace(run, "GS").replace(sys.executable, "PYTHON").replace(workspace, "/ws")
        seen.append([ip, port, username, cmd])
        state_q.put(0)
        return mock.Mock()

    launch.execute_remote = execute_remote
    launch.get_available_port = lambda ip: 29500
    launch.multiprocessing = mock.Mock(cpu_count=lambda: 16, Pipe=lambda: (mock.Mock(), mock.Mock()))
    launch.queue = queue
    main = launch.main if module == "launch" else load(module).main
    with mock.patch.object(sys, "argv", [module, *words]), contextlib.redirect_stdout(io.StringIO()):
        main()
    return seen


def process(ip, port, user, cmd):
    """Its host, login, folder, variables and words; GraphStorm quotes nothing, and no case here needs it."""
    folder, rest = cmd.removeprefix("cd ").split("; ", 1)
    env = {}
    while rest.startswith("(export "):
        variables, rest = rest.removeprefix("(export ").removesuffix(")").split(";", 1)
        env.update(variable.split("=", 1) for variable in variables.split())
        rest = rest.strip()
    return {"ip": ip, "login": f"{user}:{port}", "cwd": folder, "env": env, "words": rest.split()}


os.environ.pop("PYTHONPATH", None)
os.environ.pop("OMP_NUM_THREADS", None)
with tempfile.TemporaryDirectory() as workspace:
    os.mkdir(f"{workspace}/data")
    with open(f"{workspace}/data/g.json", "w") as file:
        json.dump({"num_parts": 2}, file)
    with open(f"{workspace}/ip.txt", "w") as file:
        file.write("10.0.0.1 30050\n10.0.0.2 30050\n")
    for line in LINES:
        by_version = {}
        for version, folder in (word.split("=", 1) for word in sys.argv[1:]):
            ran = json.dumps([process(*command) for command in launched(folder, line, workspace)])
            by_version.setdefault(ran, []).append(version)
        for ran, versions in by_version.items():
            all_of_it = {"versions": versions, "line": line, "processes": json.loads(ran)}
            print(json.dumps(all_of_it, separators=(",", ":")))
