#!/bin/bash
# What dgl-spawn costs. Against others: 4 real hosts, processes that do nothing, from the call to the word that all have ended, all
# contenders in each round, medians of ROUNDS: pdsh and clush where they are installed, ssh in a loop, and DGL's launch.py where
# DGL_TOOLS names the directory tools/ of DGL's repository. Then alone: many hosts with 5 processes each; how time and memory grow with the
# hosts; what a job costs that only waits; how fast loud output comes. Prints a table, and a JSON object a line into the file BENCH_JSON
# where that is set. Fails at nothing: a busy machine proves nothing. HOSTS=N takes fewer hosts than 250; HOSTS=0 leaves out the second half.
# Usage: spawn.sh [ROUNDS=5]
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-5} many=${HOSTS:-250}
PATH=$root/tools/dgl-launch:$PATH
export MAXSTARTUPS=100 SHM=16m

job() { # HOSTS PROCESSES COMMAND [FIRST=0]: records; the first host is 10.77.0.(FIRST+1)
    awk -v n="$1" -v first="${4:-0}" 'BEGIN { for (i = first; i < first + n; i++) printf "10.%d.%d.%d\n", 77 + int(i / 62500), int(i / 250) % 250, 1 + i % 250 }' | ipconf-check |
        jq -c --argjson p "$2" --arg command "$3" '., (. as $h | range($p) | {type: "process", id: ($h.id * $p + .), of: ($h.of * $p),
            host: $h.id, ip: $h.ip, role: "worker", rank: ($h.id * $p + .), argv: ["sh", "-c", $command]})'
}

now() { date +%s%N; }
seconds() { awk -v ns="$(($(now) - $1))" 'BEGIN { printf "%.2f", ns / 1e9 }'; }
say() { printf '%-58s %s\n' "$1" "$2"; }
json() { # WHAT OURS_S [PEER PEER_S]
    # shellcheck disable=SC2016
    tell --arg what "$1" --argjson ours "$2" --arg peer "${3:-}" --argjson peer_s "${4:-null}" '
        {type: "measure", what: $what, ours: $ours, unit: "s"} +
        if $peer_s then {peer: $peer, other: $peer_s, ratio: ($peer_s / $ours * 1000 | round / 1000)} else {} end'
}
# dgl-spawn on host 1; the CPU of it, user and system, goes to ./used
# shellcheck disable=SC2016 # the inner shell's
spawn() {
    "$cluster" exec 1 env PATH="$PATH" bash -c 'cd "$1"; TIMEFORMAT="%U %S"; time DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-spawn >out.jsonl 2>err' bash "$work" 2>used ||
        { cat err >&2; false; }
}

# ---- against others -------------------------------------------------------------------------------------------------

on1() { "$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; $1" >out 2>err || { echo "failed: $1" >&2; cat err >&2; false; }; }
contender() { # NAME SCRIPT: once more, on host 1
    local begun
    begun=$(now)
    on1 "$2"
    echo "$1 $(awk -v ns="$(($(now) - begun))" 'BEGIN { printf "%.3f", ns / 1e9 }')" >>figures
}
versus() { # WHAT OURS PEER PEER-NAME
    local ours peer
    ours=$(median "$2") peer=$(median "$3")
    [ -n "$peer" ] || return 0
    printf '%-48s %6.2f s  %-28s %6.2f s  %6.1f x\n' "$1" "$ours" "$4" "$peer" "$(awk -v a="$peer" -v b="$ours" 'BEGIN { print a / b }')"
    json "$1" "$ours" "$4" "$peer"
}
has() { command -v "$1" >/dev/null; }

# From host 1 to the four others, so that nobody gets by without ssh.
"$cluster" up 5 --quiet >/dev/null
four="10.77.0.2 10.77.0.3 10.77.0.4 10.77.0.5"
list=${four// /,}
five='for i in 1 2 3 4 5; do /bin/true & done; wait'
job 4 1 /bin/true 1 >job1.jsonl
job 4 5 /bin/true 1 >job5.jsonl
mkdir -p ws/part{0,1,2,3}
tr ' ' '\n' <<<"$four" | sed 's/$/ 30050/' >ws/ip_config.txt
for k in 0 1 2 3; do
    for file in graph node_feat edge_feat; do echo x >"ws/part$k/$file.dgl"; done
done
jq -n '{graph_name: "g", num_parts: 4} + ([range(4) | {key: "part-\(.)", value: {node_feats: "part\(.)/node_feat.dgl",
    edge_feats: "part\(.)/edge_feat.dgl", part_graph: "part\(.)/graph.dgl"}}] | from_entries)' >ws/g.json
flags="--workspace $work/ws --num_trainers 1 --num_servers 4 --part_config g.json --ip_config ip_config.txt"
python=$(python3 -c 'import sys; print(sys.executable)')
for ((round = 0; round < rounds; round++)); do
    contender spawn1 "dgl-spawn <job1.jsonl"
    contender spawn5 "dgl-spawn <job5.jsonl"
    contender blind5 "dgl-spawn --no-preflight <job5.jsonl"
    contender ssh1 "for h in $four; do ssh -o BatchMode=yes \$h /bin/true & done; wait"
    contender ssh5 "for h in $four; do for p in 1 2 3 4 5; do ssh -o BatchMode=yes \$h /bin/true & sleep 0.2; done; done; wait"
    if has pdsh; then
        contender pdsh1 "pdsh -S -R ssh -w $list /bin/true"
        contender pdsh5 "pdsh -S -R ssh -w $list '$five'"
    fi
    if has clush; then
        contender clush1 "clush -S -w $list /bin/true"
        contender clush5 "clush -S -w $list '$five'"
    fi
    # `true` with words behind it: what the job itself takes is nothing
    contender launch "dgl-launch $flags '/bin/true python3'"
    if [ -n "${DGL_TOOLS:-}" ]; then contender launch.py "'$python' '$DGL_TOOLS/launch.py' $flags '/bin/true python3'"; fi
done
"$cluster" down
printf '%-48s %8s  %-28s %8s  %8s\n' "4 hosts, start to end" ours other its ratio
versus "dgl-spawn, 1 process a host" spawn1 ssh1 "ssh, all hosts at once"
versus "dgl-spawn, 1 process a host" spawn1 pdsh1 "pdsh"
versus "dgl-spawn, 1 process a host" spawn1 clush1 "clush"
versus "dgl-spawn, 5 processes a host" spawn5 pdsh5 "pdsh, a loop on each host"
versus "dgl-spawn, 5 processes a host" spawn5 clush5 "clush, a loop on each host"
versus "dgl-spawn, 5 processes a host" spawn5 ssh5 "ssh each, 0.2 s apart"
versus "dgl-spawn --no-preflight, 5 processes a host" blind5 pdsh5 "pdsh, a loop on each host"
versus "dgl-spawn, 5 processes a host" spawn5 launch.py "launch.py"
versus "dgl-launch, 4 servers and a trainer a host" launch launch.py "launch.py"
[ "$many" -gt 0 ] || exit 0

# ---- alone ----------------------------------------------------------------------------------------------------------

begun=$(now)
"$cluster" up "$many" --quiet >/dev/null
say "$many hosts up" "$(seconds "$begun") s"
job "$many" 5 true >job.jsonl
begun=$(now)
spawn <job.jsonl
took=$(seconds "$begun")
say "$many hosts x 5 processes, started and ended" "$took s"
json "dgl-spawn, $many hosts x 5 processes, started and ended" "$took"
say "  of dgl-spawn's own CPU (user system)" "$(cat used) s"

job "$many" 5 'sleep 20' >job.jsonl
"$cluster" exec 1 env PATH="$PATH" DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-spawn --no-preflight <job.jsonl >out.jsonl 2>err &
until [ "$(grep -c '"type":"started"' out.jsonl)" = $((many * 5)) ]; do sleep 0.2; done
pid=$(pgrep -n -f '^dgl-spawn --no-preflight')
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
sleep 2
before=$(ticks)
sleep 10
say "a job of $many hosts that waits: dgl-spawn's CPU" "$(awk -v t=$(($(ticks) - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f %%", t / hz * 10 }')"
say "  memory at most" "$(awk '/VmHWM/ { print $2 / 1000 " MB" }' "/proc/$pid/status")"
wait

# Hosts that only speak as host-agent does, for what is the launcher's own: thousands of real ones need more than this machine.
cat >host <<'EOF'
read -r first
read -r bootstrap
printf '\n%s runs\n' "${first##* }"
while IFS= read -r request; do
    case $request in
        *'"do":"start"'*)
            echo '{"event":"started","index":0,"pid":1}'
            echo '{"event":"drained","index":0,"stream":"stdout"}'
            echo '{"event":"drained","index":0,"stream":"stderr"}'
            echo '{"event":"exited","index":0,"code":0,"cpu_s":0.002,"max_rss_bytes":7946240}' ;;
        *'"do":"alive"'*) echo '{"event":"alive"}' ;;
        *'"do":"end"'*) printf '{"event":"shm_removed","files":0}\n{"event":"over","survivors":0}\n'; exit ;;
        *) echo '{"event":"done"}' ;;
    esac
done
EOF
for n in 500 1000 2000; do
    job "$n" 1 true >job.jsonl
    begun=$(now)
    DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-spawn --connect 'sh ./host' <job.jsonl >out.jsonl 2>err &
    pid=$!
    while memory=$(awk '/VmHWM/ { print $2 / 1000 " MB" }' "/proc/$pid/status" 2>/dev/null) && [ -n "$memory" ]; do
        most=$memory
        sleep 0.05
    done
    wait "$pid"
    say "$n simulated hosts" "$(seconds "$begun") s, $most"
done

line=$(printf 'x%.0s' {1..99})
job 1 1 "yes $line | head -c 1000000000" >job.jsonl
begun=$(now)
dgl-spawn --connect local --log-dir logs <job.jsonl >/dev/null
say "1 GB of lines into --log-dir, stdout to /dev/null" "$(awk -v s="$(seconds "$begun")" 'BEGIN { printf "%.0f MB/s", 1000 / s }')"
rm -rf logs
dgl-spawn --connect local --log-dir logs <job.jsonl | { sleep 5; cat >/dev/null; } &
until pid=$(pgrep -n -f '^dgl-spawn --connect local --log-dir'); do sleep 0.1; done
begun=$(now)
while [ "$(stat -c %s logs/worker-0.log 2>/dev/null || echo 0)" -lt 1000000000 ] && [ -e "/proc/$pid" ]; do
    memory=$(awk '/VmHWM/ { print $2 / 1000 " MB" }' "/proc/$pid/status" 2>/dev/null) || break
    sleep 0.1
done
say "  the same while a slow reader has stdout" "$(awk -v s="$(seconds "$begun")" 'BEGIN { printf "%.0f MB/s", 1000 / s }'), $memory at most"
wait
