#!/bin/bash
# How long the planners take, and how much memory: on a job of 4 hosts each under 10 ms; dgl-env for 10,000 hosts with 8 processes
# each under 1 s and 100 MB; part-map for 10,000 hosts and partitions with 10 node types and 30 edge types under 2 s and 200 MB, and in
# proportion to them; for 100,000 scripts under 2 s. Prints numbers, and a JSON object a line into the file BENCH_JSON where that is set;
# fails at nothing: a busy machine proves nothing.
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"

hosts() { # N
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "10.%d.%d.%d\n", 1 + int(i / 62500), int(i / 250) % 250, 1 + i % 250 }'
}

parts() { # N: partitions with 10 node types and 30 edge types, their files as far as part-map looks into them
    local k
    rm -rf out
    seq -f 'out/part%g' 0 $(($1 - 1)) | xargs mkdir -p
    for ((k = 0; k < $1; k++)); do
        printf '\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd' >"out/part$k/graph.dgl"
        printf '\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd' >"out/part$k/node_feat.dgl"
        printf '\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd' >"out/part$k/edge_feat.dgl"
    done
    awk -v n="$1" '
        function map(name, types, prefix, suffix,    t, k) { # 1000 ids of each type in each part
            printf ", \"%s\": {", name
            for (t = 0; t < types; t++) {
                printf "%s\"%s%d%s\": [", t ? ", " : "", prefix, t, suffix
                for (k = 0; k < n; k++) printf "%s[%d, %d]", k ? ", " : "", (k * types + t) * 1000, (k * types + t + 1) * 1000
                printf "]"
            }
            printf "}"
        }
        function ids(name, types, prefix, suffix,    t) {
            printf ", \"%s\": {", name
            for (t = 0; t < types; t++) printf "%s\"%s%d%s\": %d", t ? ", " : "", prefix, t, suffix, t
            printf "}"
        }
        BEGIN {
            printf "{\"graph_name\": \"g\", \"num_parts\": %d, \"num_nodes\": %d, \"num_edges\": %d", n, n * 10000, n * 30000
            map("node_map", 10, "n", ""); ids("ntypes", 10, "n", "")
            map("edge_map", 30, "n0:e", ":n1"); ids("etypes", 30, "n0:e", ":n1")
            for (k = 0; k < n; k++) printf ", \"part-%d\": {\"node_feats\": \"part%d/node_feat.dgl\", \"edge_feats\": \"part%d/edge_feat.dgl\", \"part_graph\": \"part%d/graph.dgl\"}", k, k, k, k
            print "}"
        }' >out/g.json
}

scripts() { # N: files in directories of 100
    local k
    rm -rf code
    seq -f 'code/%g' 0 $((($1 - 1) / 100)) | xargs mkdir -p
    for ((k = 0; k < $1; k++)); do echo x >"code/$((k / 100))/$k.py"; done
}

best() { # NAME CMD...: the best of $runs, and what it took of a processor, which says more on a busy machine
    local name=$1 i TIMEFORMAT='%3R %3U %3S'
    shift
    for ((i = 0; i < runs; i++)); do { time "$@" >out.jsonl 2>err.txt; } 2>&1; done | awk -v name="$name" '
        { real = $1 * 1000; cpu = ($2 + $3) * 1000 }
        NR == 1 || real < best { best = real }
        NR == 1 || cpu < least { least = cpu }
        END {
            printf "%-40s %8.0f ms, %.0f ms of CPU\n", name, best, least
            if (ENVIRON["BENCH_JSON"] != "") {
                printf "{\"type\":\"measure\",\"what\":\"%s\",\"ours\":%.3f,\"unit\":\"s\"}\n", name, best / 1000 >>ENVIRON["BENCH_JSON"]
            }
        }'
}

memory() { # NAME CMD...
    local name=$1
    shift
    if [ -x /usr/bin/time ]; then /usr/bin/time -f "$(printf '%-40s' "$name") %M KB at most" "$@" 2>&1 >out.jsonl <hosts.jsonl | tail -n 1; fi
}

check() { ipconf-check ip_config.txt; }
map() { part-map --part-config out/g.json --workspace /data/job <hosts.jsonl; }
map_scripts() { part-map --workspace /data/job --script-folder code <hosts.jsonl; }
env_() { dgl-env --num-trainers "$1" --num-servers "$2" --workspace /data/job --part-config data/g.json -- python3 train.py <hosts.jsonl 2>/dev/null; }

runs=20
hosts 4 >ip_config.txt
parts 4
check >hosts.jsonl
best "ipconf-check, 4 hosts" check
best "part-map, 4 hosts" map
best "dgl-env, 4 hosts x 4 processes" env_ 2 2

runs=5
for count in 2500 5000 10000; do
    hosts $count >ip_config.txt
    parts $count
    check >hosts.jsonl
    best "ipconf-check, $count hosts" check
    best "part-map, $count hosts, 40 types" map
done
memory "part-map, 10000 hosts, 40 types" part-map --part-config out/g.json --workspace /data/job
best "dgl-env, 10000 hosts x 8 processes" env_ 4 4
memory "dgl-env, 10000 hosts x 8 processes" dgl-env --num-trainers 4 --num-servers 4 --workspace /data/job --part-config data/g.json -- python3 train.py

hosts 4 >ip_config.txt
check >hosts.jsonl
for count in 25000 50000 100000; do
    scripts $count
    best "part-map, $count scripts" map_scripts
done
memory "part-map, 100000 scripts" part-map --workspace /data/job --script-folder code
