#!/bin/bash
# What link-probe says of links whose rate is known: 2 real hosts that send to each other, shaped to 100 Mbit/s and to 1 Gbit/s. A packet
# of 1,514 bytes carries 1,448 of content. Prints a table, and a JSON object a line into the file BENCH_JSON where that is set. Fails at nothing: a busy machine
# proves nothing.
# Usage: links.sh [ROUNDS=5]
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-5}
export SHM=16m
seq -f 10.77.0.%g 2 | ipconf-check >hosts.jsonl
printf '%-60s %10s  %10s\n' "links" shaped measured
for rate in 100 1000; do
    "$cluster" up 2 --rate "${rate}mbit" --quiet >/dev/null
    for ((i = 0; i < rounds; i++)); do
        "$cluster" exec 1 sh -c "cd '$work'; PATH='$PATH' DGL_TOOLS_CONNECT_TIMEOUT=60s link-probe --time 2s <hosts.jsonl" 2>>said >>"links-$rate"
    done
    "$cluster" down
    jq -r 'select(.type == "link") | "rate \(.rate_bytes_per_s * 8 / 1e6)"' "links-$rate" >figures
    apart() { awk -v r="$rate" '{ d = $1 / r / (1448 / 1514) - 1; if (d < 0) d = -d; if (d > w) w = d } END { printf "%.2f", 100 * w }'; }
    printf '%-60s %5s Mbit/s  %7.1f Mbit/s\n' "content, median of $(wc -l <figures) links" "$rate" "$(median rate)"
    limit "the median, from what the shaped rate leaves for content" "$(median rate | apart)" % 5
    limit "the furthest of all" "$(cut -d' ' -f2 figures | apart)" %
done
