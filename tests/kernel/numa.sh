# Two NUMA nodes of two processors and 1 GB each.
# shellcheck shell=bash disable=SC2154,SC2016

try_numa() {
    echo 10.78.0.2 >vm.txt
    ipconf-check vm.txt | host-probe --python none >hosts.jsonl 2>err || cat err
    guest 'mkdir -p /srv/ws; cat >/srv/ws/where.py' <<'P'
import os, re
allowed = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("Cpus_allowed_list"))
held = bytearray(200 << 20)
held[::4096] = b"x" * len(held[::4096])
pages = [0, 0]
for line in open("/proc/self/numa_maps"):
    for node, count in re.findall(r" N([01])=(\d+)", line if " anon=" in line else ""):
        pages[int(node)] += int(count)
share = [100 * count // sum(pages) for count in pages]
role = os.environ.get("DGL_ROLE", "worker").replace("client", "trainer")
rank = os.environ.get("DGL_SERVER_ID") if role == "server" else os.environ.get("RANK")
print(f"{role} cpus {allowed} memory {'of node 0' if share[0] >= 95 else 'of node 1' if share[1] >= 95 else share}")
P
    is "host-probe tells both" 'jq -se "map(select(.type == \"host\"))[0] | .cpus == 4 and .numa_cores == [[[0], [1]], [[2], [3]]]" hosts.jsonl' hosts.jsonl err
    is "--bind numa: memory is of the node whose processors a worker has" 'where --bind numa --num-workers 2 >where.txt &&
        diff where.txt <(printf "%s\n" "worker cpus 0-1 memory of node 0" "worker cpus 2-3 memory of node 1")' where.txt err
    is "--bind cores: each its own" 'where --bind cores --num-workers 4 >where.txt &&
        diff where.txt <(for cpu in 0 1 2 3; do echo "worker cpus $cpu memory of node $((cpu / 2))"; done)' where.txt err
    is "without it a worker runs anywhere" 'where --num-workers 1 >where.txt && grep -q "cpus 0-3 " where.txt' where.txt err
    is "servers and trainers on both nodes" 'ws_job >where.txt && diff where.txt <(printf "%s\n" \
        "server cpus 0-1 memory of node 0" "server cpus 2-3 memory of node 1" "trainer cpus 0-1 memory of node 0" "trainer cpus 2-3 memory of node 1")' where.txt err
    # what is said to the ssh that started sshd is what its logins may have: a batch system's cpuset
    guest 'taskset -pc 1,2 "$(cat /run/sshd.pid)"' >/dev/null
    is "a login that may use one processor of each" 'ipconf-check vm.txt | host-probe --python none 2>err >few.jsonl &&
        jq -se "map(select(.type == \"host\"))[0] | .cpus == 2 and .numa_cores == [[[1]], [[2]]]" few.jsonl' few.jsonl err
    guest 'taskset -pc 0-3 "$(cat /run/sshd.pid)"' >/dev/null
}

where() { # FLAG...: what processes say of themselves
    dgl-env --role worker --workspace /srv/ws "$@" -- python3 where.py <hosts.jsonl 2>err | dgl-spawn 2>>err >run.jsonl || return
    said
}
said() { jq -r 'select(.type == "output") | .line' run.jsonl | sort; }

ws_job() {
    dgl-env --workspace /srv/ws --part-config g.json --num-servers 2 --num-trainers 2 --bind numa -- python3 where.py <hosts.jsonl 2>err |
        dgl-spawn --no-preflight 2>>err >run.jsonl || return
    said
}
