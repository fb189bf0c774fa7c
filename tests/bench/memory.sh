#!/bin/bash
# What part-fit says a graph server takes, beside what a real one takes: the table of part-fit(1).
#   memory.sh [PYTHON ...]   Pythons with DGL; without one, that of tests/dgl/python.sh
# Needs unshare(1) for a /dev/shm of each server's own; some minutes for each Python.
set -euo pipefail
export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json
here=$(cd "$(dirname "$0")/.." && pwd)
tools=${CARGO_TARGET_DIR:-$here/../target}/${PROFILE:-release}
work=$(mktemp -d "${TMPDIR:-/tmp}/memory.XXXXXX")
trap 'rm -rf "$work"' EXIT
pythons=("$@")
[ $# -gt 0 ] || pythons=("$("$here/dgl/python.sh")")

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
    local said figures flags=()
    [ "$2" = dgl ] || flags=(--graphbolt)
    said=$(served "$1" "$here/dgl/memory.py" serve --config "$work/$3/g.json" --formats "$4" "${flags[@]}" 2>"$work/said") ||
        { tail -n 3 "$work/said" >&2; return 1; }
    figures=$(predicted "$work/$3/g.json" "$4" "$2" "$(jq -r .dgl <<<"$said")" "$(jq -r .torch <<<"$said")")
    jq -rn --argjson node_feat "$(stat -c %s "$work/$3/part0/node_feat.dgl")" \
        --argjson edge_feat "$(stat -c %s "$work/$3/part0/edge_feat.dgl")" --argjson m "$said" --argjson p "$figures" --arg name "$3" --arg formats "$4" --arg form "$2" '
        def mb: . / 1e6 | round;
        def off($is): 1000 * (. / $is - 1) | round / 10;
        [$m.dgl, $form, $name, $formats, $p.nodes + $p.halo_nodes, $p.edges + $p.halo_edges,
         $node_feat, $edge_feat, $m.shm, $m.peak, ($p.disk_bytes | mb), ($m.shm | mb), ($p.shm_bytes | off($m.shm)),
         ($m.peak | mb), ($p.server_bytes | mb), ($p.server_bytes | off($m.peak)),
         ($m.before.RssAnon | mb), ($m.before.RssFile | mb), ($m.after.RssAnon | mb), ($m.after.RssFile | mb)] | @tsv'
}

printf 'dgl\tform\tgraph\tformats\tnodes\tedges\tnode_feat\tedge_feat\tshm\tpeak\tdisk MB\tshm\terror %%\tpeak\tpredicted\terror %%\tanon\tfile\tanon after\tfile after\n'
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
