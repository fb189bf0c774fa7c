#!/bin/bash
# How long the planners take, and how much memory: on a job of 4 hosts each under 10 ms; dgl-env for 10,000 hosts with 8 processes
# each under 1 s and 100 MB. Prints numbers and fails at nothing: a busy machine proves nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
PATH=$PWD/${CARGO_TARGET_DIR:-target}/release:$PATH
case ${CARGO_TARGET_DIR:-} in /*) PATH=$CARGO_TARGET_DIR/release:$PATH ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

hosts() { # N
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "10.%d.%d.%d\n", 1 + int(i / 62500), int(i / 250) % 250, 1 + i % 250 }'
}

parts() { # N: a partition config with files that hold nothing of use
    local k
    for ((k = 0; k < $1; k++)); do
        mkdir -p "out/part$k"
        for name in node_feat edge_feat graph; do echo x >"out/part$k/$name.dgl"; done
    done
    jq -n --argjson n "$1" '{graph_name: "g", num_parts: $n} + ([range($n) | {key: "part-\(.)", value: {
        node_feats: "part\(.)/node_feat.dgl", edge_feats: "part\(.)/edge_feat.dgl", part_graph: "part\(.)/graph.dgl"}}]
        | from_entries)' >out/g.json
}

best() { # NAME CMD...: the best of 20 runs
    local name=$1 best=999999999 begin took i
    shift
    for ((i = 0; i < 20; i++)); do
        begin=$(date +%s%N)
        "$@" >out.jsonl
        took=$(($(date +%s%N) - begin))
        if [ "$took" -lt "$best" ]; then best=$took; fi
    done
    awk -v name="$name" -v ns="$best" 'BEGIN { printf "%-40s %8.1f ms\n", name, ns / 1e6 }'
}

check() { ipconf-check ip_config.txt; }
map() { part-map --part-config out/g.json --workspace /data/job <hosts.jsonl; }
env_() { dgl-env --num-trainers "$1" --num-servers "$2" --workspace /data/job --part-config data/g.json -- python3 train.py <hosts.jsonl 2>/dev/null; }

hosts 4 >ip_config.txt
parts 4
check >hosts.jsonl
best "ipconf-check, 4 hosts" check
best "part-map, 4 hosts" map
best "dgl-env, 4 hosts x 4 processes" env_ 2 2

hosts 10000 >ip_config.txt
check >hosts.jsonl
best "ipconf-check, 10000 hosts" check
best "dgl-env, 10000 hosts x 8 processes" env_ 4 4
if [ -x /usr/bin/time ]; then
    /usr/bin/time -f "dgl-env, 10000 hosts x 8 processes        %M KB at most" dgl-env --num-trainers 4 --num-servers 4 \
        --workspace /data/job --part-config data/g.json -- python3 train.py <hosts.jsonl 2>&1 >out.jsonl | tail -1
fi
