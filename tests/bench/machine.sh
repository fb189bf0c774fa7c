#!/bin/bash
# Names the machine, for people and as the first line of $BENCH_JSON, where that has none yet: figures of two machines do not compare.
set -euo pipefail
[ -z "${BENCH_JSON:-}" ] || [ ! -s "$BENCH_JSON" ] || exit 0
cpu=$(awk -F': ' '/^model name/ { print $2; exit }' /proc/cpuinfo)
cores=$(getconf _NPROCESSORS_ONLN)
memory=$(awk '/^MemTotal:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
linux=$(uname -r)
ssh=$(ssh -V 2>&1 | cut -d, -f1)
printf 'machine: %s, %s cores, %s GB, Linux %s, %s\n' "${cpu:-$(uname -m)}" "$cores" "$((memory / 1000000000))" "$linux" "$ssh"
if [ -n "${BENCH_JSON:-}" ]; then
    jq -nc --arg machine "${cpu:-$(uname -m)}" --argjson cores "$cores" --argjson mem_bytes "$memory" --arg linux "$linux" --arg ssh "$ssh" \
        '{type: "machine", $machine, $cores, $mem_bytes, $linux, $ssh}' >"$BENCH_JSON"
fi
