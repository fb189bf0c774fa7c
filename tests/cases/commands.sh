#!/bin/sh
# What cases have beside the tools: each command of a case begins with this.
# shellcheck disable=SC2016 # what stands in single quotes is for jq, or for the shell of a host

# What the user of the tests has set.
unset OMP_NUM_THREADS PYTHONPATH

# Addresses in 10.0.0.0/24 in ip.txt, and their records in `hosts`.
hosts() { # COUNT
    seq -f '10.0.0.%.0f' "$1" >ip.txt
    ipconf-check ip.txt >hosts
}

# A graph in out/, as far as planners look into it, and code/. Its files begin as DGL's do, with a line of their own behind it.
partition() { # PARTS
    mkdir -p out code
    # by awk, because jq takes ten times as long to start
    awk -v parts="$1" 'BEGIN {
        for (part = 1; part <= parts; part++) all = all (part > 1 ? "," : "") part
        printf "{\"graph_name\":\"g\",\"num_nodes\":%d,\"num_edges\":%d,", parts, parts
        printf "\"node_map\":{\"_N\":[%s]},\"edge_map\":{\"_N:_E:_N\":[%s]},\"etypes\":{\"_N:_E:_N\":0},\"num_parts\":%d", all, all, parts
        for (part = 0; part < parts; part++) {
            printf ",\"part-%d\":{\"node_feats\":\"part%d/node_feat.dgl\",\"edge_feats\":\"part%d/edge_feat.dgl\",", part, part, part
            printf "\"part_graph\":\"part%d/graph.dgl\"}", part
        }
        print "}"
    }' >out/g.json
    for part in $(seq 0 $(($1 - 1))); do
        mkdir -p "out/part$part"
        printf '\077\104\242\077\276\237\132\335\nnode_feat of part %d' "$part" >"out/part$part/node_feat.dgl"
        printf '\077\104\242\077\276\237\132\335\nedge_feat of part %d' "$part" >"out/part$part/edge_feat.dgl"
        printf '\077\241\264\106\360\117\056\335\ngraph of part %d' "$part" >"out/part$part/graph.dgl"
    done
    printf 'tail -n 1 "data/part$RANK/graph.dgl"; echo; echo "$1"\n' >'code/run it.sh'
}

# A graph record of this many partitions.
of_graph() { # PARTS
    printf '{"type":"graph","graph_name":"g","num_parts":%d,"files":0,"workspace":"/ws","part_config":"data/g.json","ip_config":"ip.txt"}\n' "$1"
}

# Records of hosts with 16 processors and an interface, after an edit in jq, in `stream`.
probed() { # COUNT EDIT
    awk -v count="$1" 'BEGIN { for (id = 0; id < count; id++)
        printf "{\"type\":\"host\",\"id\":%d,\"of\":%d,\"ip\":\"10.0.%d.%d\",\"port\":30050,\"cpus\":16,\"iface\":\"eth1\"}\n",
            id, count, (id + 1) / 256, (id + 1) % 256 }' >stream
    [ "$2" = . ] || { jq -c "$2" stream >edited && mv edited stream; }
}

# What dgl-env plans for such hosts.
planned() { # COUNT EDIT FLAG…
    probed "$1" "$2"
    shift 2
    dgl-env "$@" <stream
}

# The same with a graph, which has a partition for each host.
planned_with_graph() { # COUNT EDIT FLAG…
    probed "$1" "$2"
    of_graph "$1" >>stream
    shift 2
    dgl-env "$@" <stream
}

# Variables of each process of the plan on stdin; - stands for one that it does not have.
variables() { # NAME…
    jq -r --args 'select(.type == "process") | .env as $env | "\(.role) \(.rank): \([$ARGS.positional[] | $env[.] // "-"] | join(" "))"' "$@"
}

# The command of each process of the plan on stdin.
commands() {
    jq -r 'select(.type == "process") | "\(.role) \(.rank): \(.shell // (.argv | join(" ")))"'
}

# What DGL of a version wrote, in out/, and records of two hosts.
fixture() { # NAME
    rm -rf out
    cp -r "$CASES/../fixtures/$1" out
    sed -i "s|@HERE@|$PWD/out|" out/g.json
    hosts 2
}

# A directory as GLT writes it, with parts by this name, and records of two hosts.
of_glt() { # NAME PARTS
    rm -rf out
    mkdir -p out/node_pb out/ranks
    echo m >out/META
    echo n >out/node_pb/a.pt
    for part in $(seq 0 $(($2 - 1))); do
        mkdir -p "out/$1$part/graph"
        echo "$part" >"out/$1$part/graph/ids.pt"
        echo "$part" >"out/ranks/rank=$part.parquet"
    done
    hosts 2
}

# A partition in code/data, in a directory of scripts with links, odd names and what nobody wants on the hosts.
script_folder() {
    partition 1
    hosts 1
    mkdir -p lib code/runs code/.git code/__pycache__ code/deep/er 'code/odd "ä'
    touch lib/l.py code/.git/config code/__pycache__/a.pyc code/a.pyc code/deep/er/b.py 'code/odd "ä/c' code/x.log code/keep.log
    chmod 755 code/deep/er/b.py
    ln -s ../lib code/lib
    ln -s ../lib/l.py code/l.py
    ln -s code also
    mv out code/data
}

# Each file of the records on stdin as HOST DST, the host - where it goes to all. The records are in plan.jsonl then.
files() {
    cat >plan.jsonl
    jq -r 'select(.type == "file") | "\(.host // "-") \(.dst)"' plan.jsonl
}

# A shell command with `names` in the place of /etc/hosts, and `config` as ssh_config.
with_names() { # COMMAND
    # shellcheck disable=SC2046 # one word or none
    unshare $([ "$(id -u)" = 0 ] || echo --map-root-user) --mount sh -c "mount --bind names /etc/hosts; export DGL_TOOLS_SSH_CONFIG=\$PWD/config; $1"
}

# Records of jobs that failed, for dgl-why.
RECORDINGS=$CASES/../../tools/dgl-why/tests/recordings

# What dgl-why says of a recording, or of records on stdin, and how many of them it shows.
verdict() { # RECORDING|-
    if [ "$1" = - ]; then cat; else cat "$RECORDINGS/$1.jsonl"; fi | dgl-why |
        awk '/^ *(shown by: )?\{/ { shown++; next } { print } END { if (shown) print "  shown by " shown " records" }'
}

# The records of a job before its end began.
unfinished() { # RECORDING
    grep -v -e '"while_ending":true' -e '"type":"summary"' "$RECORDINGS/$1.jsonl"
}

# A job of trainers on this machine, each a command for sh, in job.jsonl.
local_job() { # COMMAND…
    jq -nc --arg cwd "$PWD" '$ARGS.positional as $commands | {type: "host", id: 0, of: 1, ip: "127.0.0.1", port: 30050},
        ($commands | to_entries[] | {type: "process", id: .key, of: ($commands | length), host: 0, ip: "127.0.0.1", role: "trainer", rank: .key,
        cwd: $cwd, env: {PYTHONFAULTHANDLER: "1"}, argv: ["sh", "-c", .value]})' --args "$@" >job.jsonl
}

# Runs it, for a minute at most.
spawn() { # FLAG…
    timeout 60 dgl-spawn --connect local "$@" <job.jsonl
}
