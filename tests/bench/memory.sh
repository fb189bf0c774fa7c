#!/bin/bash
# What part-fit says graph servers and jobs take, beside what real ones take: the tables of part-fit(1).
#   memory.sh [PYTHON ...]   Pythons with DGL; without one, that of tests/dgl/python.sh
# Needs unshare(1) for a /dev/shm of each server's own; some minutes for each Python.
set -euo pipefail
export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json
here=$(cd "$(dirname "$0")/.." && pwd)
root=$(dirname "$here")
tools=$(cd "$root" && readlink -m "${CARGO_TARGET_DIR:-target}/${PROFILE:-release}")
[ $# -gt 0 ] || { python=$("$here/dgl/python.sh"); set -- "$python"; }
pythons=()
for name; do
    python=$(command -v -- "$name") || { echo "memory.sh: $name: there is no such Python" >&2; exit 2; }
    # its directory alone is made absolute: behind the link in a venv is a Python that has no DGL
    pythons+=("$(cd "$(dirname "$python")" && pwd)/$(basename "$python")")
done
work=$(mktemp -d "${TMPDIR:-/tmp}/memory.XXXXXX")
trap 'rm -rf "$work"' EXIT

# name  nodes edges node-dim edge-dim types
graphs='
tiny      1000    4000    4   0  1
graph     400000  6000000 0   0  1
nodes     400000  400000  250 0  1
edges     100000  1000000 0   60 1
both      200000  800000  200 50 1
all       300000  4000000 100 10 1
types     400000  5000000 60  0  2
typed-edges 200000 2000000 0  30 2
'
# graph  formats
servers='
tiny   csc
graph  csc
graph  coo
graph  csr
graph  csc,coo
nodes  csc
edges  csc
both   csc
both   coo
all    csc
all    csc,coo
types  csc
types  csc,coo,csr
typed-edges csc
'

predicted() { # CONFIG FORMATS FORM DGL TORCH
    local host='{"type":"host","id":%d,"of":2,"ip":"127.0.0.%d","port":30050,"mem_bytes":1,"shm_free_bytes":1,"dgl":"%s","torch":"%s"}\n'
    # shellcheck disable=SC2059 # the format is above
    { printf "$host" 0 1 "$4" "$5"; printf "$host" 1 2 "$4" "$5"; } |
        "$tools/part-fit" --part-config "$1" --graph-format "$2" --graph "$3" --warn-only --format jsonl 2>/dev/null |
        jq -c 'select(.type == "fit" and .id == 0)'
}

# a /dev/shm of its own, which ends with it
served() { unshare --mount --propagation private sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$@"' sh "$@"; }

measure() { # PYTHON FORM NAME FORMATS
    local said figures graph flags=()
    [ "$2" = dgl ] || flags=(--graphbolt)
    said=$(served "$1" "$here/dgl/memory.py" serve --config "$work/$3/g.json" --formats "$4" "${flags[@]}" 2>"$work/said") ||
        { tail -n 3 "$work/said" >&2; return 1; }
    figures=$(predicted "$work/$3/g.json" "$4" "$2" "$(jq -r .dgl <<<"$said")" "$(jq -r .torch <<<"$said")")
    case $2 in dgl) graph=graph.dgl ;; *) graph=fused_csc_sampling_graph.pt ;; esac
    jq -rn --argjson graph "$(stat -c %s "$work/$3/part0/$graph")" --argjson node_feat "$(stat -c %s "$work/$3/part0/node_feat.dgl")" \
        --argjson edge_feat "$(stat -c %s "$work/$3/part0/edge_feat.dgl")" --argjson m "$said" --argjson p "$figures" --arg name "$3" --arg formats "$4" --arg form "$2" '
        def mb: . / 1e6 | round;
        def off($is): 1000 * (. / $is - 1) | round / 10;
        [$m.dgl, $form, $name, $formats, $graph,
         $node_feat, $edge_feat, $m.shm, $m.peak, ($p.disk_bytes | mb), ($m.shm | mb), ($p.shm_bytes | off($m.shm)),
         ($m.peak | mb), ($p.server_bytes | mb), ($p.server_bytes | off($m.peak)),
         ($m.before.RssAnon | mb), ($m.before.RssFile | mb), ($m.after.RssAnon | mb), ($m.after.RssFile | mb)] | @tsv'
}

# name  nodes edges node-dim nodes-to-train-on
trained='
tiny   2000   8000    4   1000
large  600000 3000000 50  4000
'
# trainers samplers
jobs='
1 0
2 0
1 2
2 1
'

# A job on this machine, all of whose processes are looked at when it has trained.
run_job() { # PYTHON NAME TRAINERS SAMPLERS
    local said predicted
    (
        cd "$work"
        echo 127.0.0.1 >ip_config.txt
        ipconf-check ip_config.txt | host-probe --connect local --python "$1" >host.jsonl
        dgl-env --workspace "$work" --part-config "$2/g.json" --ip-config ip_config.txt --num-trainers "$3" --num-samplers "$4" \
            --num-omp-threads 1 -- "$1" "$here/dgl/memory.py" run --ip-config ip_config.txt --config "$2/g.json" <host.jsonl |
            dgl-spawn --connect local --private-shm --no-push-check --timeout 5m --format jsonl >run.jsonl
    ) 2>"$work/said" || { tail -n 3 "$work/said" >&2; return 1; }
    said=$(jq -r 'select(.type == "output").line | select(startswith("took "))[5:]' "$work/run.jsonl" | jq -sc 'map(select(.when == "trained"))')
    predicted=$(part-fit --part-config "$work/$2/g.json" --num-trainers "$3" --num-samplers "$4" --warn-only --format jsonl <"$work/host.jsonl" |
        jq 'select(.type == "fit").run_bytes')
    # libraries and /dev/shm are mapped by all, and count once
    jq -r --arg name "$2" --argjson trainers "$3" --argjson samplers "$4" --argjson run "$predicted" '
        def own($role): [.[] | select(.role == $role).RssAnon] | max // 0 | . / 1e6 | round;
        (map(.RssAnon) | add) as $own | (map(.RssFile) | max) as $files | (map(select(.role == "server").RssShmem) | max) as $shm |
        ($own + $files + $shm) as $all |
        [.[0].dgl, $name, $trainers, $samplers, own("server"), own("trainer"), own("sampler"), ($files / 1e6 | round), $shm, $all, $run,
         (1000 * ($run / $all - 1) | round / 10)] | @tsv' <<<"$said"
}

printf 'dgl\tform\tgraph\tformats\tgraph\tnode_feat\tedge_feat\tshm\tpeak\tdisk MB\tshm\terror %%\tpeak\tpredicted\terror %%\tanon\tfile\tanon after\tfile after\n'
for python in "${pythons[@]}"; do
    rm -rf "${work:?}"/*
    graphbolt=()
    "$python" -c 'import dgl, sys; sys.exit(tuple(map(int, dgl.__version__.split(".")[:2])) < (2, 1))' 2>/dev/null &&
        graphbolt=(--graphbolt)
    while read -r name nodes edges node_dim edge_dim types; do
        [ -n "$name" ] || continue
        "$python" "$here/dgl/memory.py" make --out "$work/$name" --nodes "$nodes" --edges "$edges" --node-dim "$node_dim" \
            --edge-dim "$edge_dim" --types "$types" "${graphbolt[@]}" 2>"$work/said" || { tail -n 3 "$work/said" >&2; exit 1; }
    done <<<"$graphs"
    while read -r name formats; do
        [ -n "$name" ] || continue
        measure "$python" dgl "$name" "$formats"
        [ ${#graphbolt[@]} -eq 0 ] || [ "$formats" != csc ] || measure "$python" graphbolt "$name" "$formats"
    done <<<"$servers"
done

PATH=$tools:$PATH
printf 'dgl\tgraph\ttrainers\tsamplers\tserver MB\ttrainer\tsampler\tlibraries\tshm\tall\tpredicted\terror %%\n'
for python in "${pythons[@]}"; do
    rm -rf "${work:?}"/*
    while read -r name nodes edges node_dim labels; do
        [ -n "$name" ] || continue
        "$python" "$here/dgl/memory.py" make --out "$work/$name" --nodes "$nodes" --edges "$edges" --node-dim "$node_dim" \
            --parts 1 --labels "$labels" 2>"$work/said" || { tail -n 3 "$work/said" >&2; exit 1; }
        while read -r trainers samplers; do
            [ -z "$trainers" ] || run_job "$python" "$name" "$trainers" "$samplers" </dev/null
        done <<<"$jobs"
    done <<<"$trained"
done
