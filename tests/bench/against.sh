#!/bin/bash
# What many hosts cost: this build, and beside it in each round an older one, where OLD names the directory of its release binaries.
# Medians; absolute numbers are this machine's, which carries all hosts, so the ratio is what counts. Fails at nothing.
# Usage: against.sh [ROUNDS=10]
# HOSTS=250   how many, 0 leaves out the parts that need them;  BUSY=2  loops beside the parts that are called busy
# PARTS='start busy probe push lines first memory'
loops=()
at_end() { [ ${#loops[@]} = 0 ] || kill "${loops[@]}"; }
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-10}
new=$bin
old=${OLD:-}
builds="new${old:+ old}"
hosts=${HOSTS:-250}
export MAXSTARTUPS=100 SHM=16m
if [ -n "$old" ]; then # it may lie in /tmp, which every host has for itself
    mkdir old
    for tool in dgl-spawn host-probe part-push host-agent; do cp "$old/$tool" old/; done
    old=$work/old
fi

plan() { # HOSTS: host records of the cluster's
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "10.77.%d.%d\n", int(i / 250), 1 + i % 250 }' | "$new/ipconf-check" >hosts.jsonl
}
job() { # PROCESSES COMMAND: on each of them
    jq -c --argjson p "$1" --arg command "$2" '., (. as $h | range($p) | {type: "process", id: ($h.id * $p + .), of: ($h.of * $p),
        host: $h.id, ip: $h.ip, role: "worker", rank: ($h.id * $p + .), argv: ["sh", "-c", $command]})' hosts.jsonl >job.jsonl
}
# One more measurement, on host 1: seconds, CPU seconds and memory in KB of one tool; its records stand in out.jsonl.
measure() { # NAME BUILD SCRIPT: the script calls a tool of that build as "$TOOLS/tool", behind $MEASURED
    local folder=$new begun
    [ "$2" = new ] || folder=$old
    begun=$(date +%s%N)
    "$cluster" exec 1 env TOOLS="$folder" MEASURED="/usr/bin/time -o $work/cost -f %U:%S:%M" bash -c "cd '$work'; $3" >out.jsonl 2>err || true
    tail -n 1 cost | awk -F: -v name="$1-$2" -v ns="$(($(date +%s%N) - begun))" '{ print name, ns / 1e9, $1 + $2, $3 / 1024 }' >>figures
}
# A first contact is another thing, which `first` measures.
# shellcheck disable=SC2016 # the inner shell's
meet() {
    local build
    for build in $builds; do measure meet "$build" '$MEASURED "$TOOLS/host-probe" --partial <hosts.jsonl'; done
}
failed() { # NAME COUNT: what failed in this round
    echo "$1 $2" >>failures
}
failures_of() { awk -v name="$1" '$1 == name { n += $2; rounds++ } END { printf "%d", n }' failures; }
with_loops() { # CMD...
    local k
    for ((k = 0; k < ${BUSY:-2}; k++)); do
        while :; do :; done &
        loops+=($!)
    done
    "$@"
    kill "${loops[@]}"
    wait "${loops[@]}" 2>/dev/null || true
    loops=()
}
show() { # TEXT NAME FIELD UNIT [GOAL]: against the older build, or alone
    if [ -n "$old" ]; then
        compare "$1: older / this" "$(median "$2-old" "$3")" "$(median "$2-new" "$3")" "$4" "${5:-}"
    else
        limit "$1" "$(median "$2-new" "$3")" "$4"
    fi
}
# shellcheck disable=SC2016 # the inner shell's
start() { # NAME TEXT
    local build
    job 5 true
    for ((round = 0; round < rounds; round++)); do
        for build in $builds; do
            measure "$1" "$build" '$MEASURED "$TOOLS/dgl-spawn" <job.jsonl'
            failed "$1-$build" $((hosts * 5 - $(grep -c '"type":"exited".*"code":0' out.jsonl || true)))
        done
    done
    show "$hosts hosts x 5 processes, start to end$2" "$1" 2 s 2
    show "  dgl-spawn's CPU" "$1" 3 s
    show "  its memory at most" "$1" 4 MB
    for build in $builds; do
        limit "  processes without an end of 0 in $rounds rounds, $build" "$(failures_of "$1-$build")" "" 0
    done
}
# shellcheck disable=SC2016
probe() {
    local build
    for ((round = 0; round < rounds; round++)); do
        for build in $builds; do
            measure probe "$build" '$MEASURED "$TOOLS/host-probe" --partial <hosts.jsonl'
            failed "probe-$build" $((hosts - $(grep -c '"cpus":' out.jsonl || true)))
        done
    done
    show "host-probe, $hosts hosts" probe 2 s
    show "  its CPU" probe 3 s
    for build in $builds; do
        limit "  hosts that were not probed in $rounds rounds, $build" "$(failures_of "probe-$build")" "" 0
    done
}
# shellcheck disable=SC2016
push() {
    local k build
    mkdir -p src
    for k in 0 1 2 3 4 5 6 7 8 9; do head -c 4K /dev/urandom >"src/$k"; done
    "$new/part-map" --workspace /srv/ws --extra src <hosts.jsonl 2>err >files.jsonl
    for ((round = 0; round < rounds; round++)); do
        for build in $builds; do
            for ((k = 1; k <= hosts; k++)); do rm -rf "$LAB/h$k/srv/ws"; done
            measure push "$build" '$MEASURED "$TOOLS/part-push" --progress never <files.jsonl'
            failed "push-$build" "$(jq -s '(map(select(.type == "file" and .kind == "extra")) | length) as $files |
                (map(select(.type == "host")) | length) * $files -
                (map(select(.type == "pushed" and .ok and .bytes == 4096)) | length)' out.jsonl)"
        done
    done
    show "$hosts hosts, 10 small files each, beside ${BUSY:-2} busy loops" push 2 s
    for build in $builds; do
        limit "  deliveries that failed in $rounds rounds, $build" "$(failures_of "push-$build")" "" 0
    done
}
# shellcheck disable=SC2016
lines() { # of one host, through its connection
    local build
    "$new/ipconf-check" - <<<10.77.0.2 >hosts.jsonl
    job 1 "yes $(printf 'x%.0s' {1..99}) | head -n 300000"
    for ((round = 0; round < rounds; round++)); do
        for build in $builds; do
            measure lines "$build" '$MEASURED "$TOOLS/dgl-spawn" --no-preflight --log-dir logs-$RANDOM <job.jsonl >/dev/null'
            rm -rf logs-*
        done
    done
    show "300,000 lines of 100 bytes from a host into --log-dir" lines 2 s
    limit "  thousand lines a second" "$(awk -v s="$(median lines-new)" 'BEGIN { print 300 / s }')" ""
}
forget() { # the agent in the users' cache, whose home all hosts here share
    local file
    for file in "${XDG_CACHE_HOME:-$HOME/.cache}"/dgl-tools/host-agent-*; do
        if cmp -s "$file" "$new/host-agent"; then rm -f "$file"; fi
    done
}
# shellcheck disable=SC2016
first() {
    plan 4
    job 1 true
    for ((round = 0; round < rounds; round++)); do
        forget
        measure first new '$MEASURED "$TOOLS/dgl-spawn" --no-preflight <job.jsonl'
        measure later new '$MEASURED "$TOOLS/dgl-spawn" --no-preflight <job.jsonl'
    done
    compare "4 hosts, start to end: first contact / later ones" "$(median first-new)" "$(median later-new)" s
}
# shellcheck disable=SC2016
memory() { # of the agent of a host with 100 processes
    local pid most=0
    "$new/ipconf-check" - <<<10.77.0.2 >hosts.jsonl
    job 100 'sleep 5'
    "$cluster" exec 1 "$new/dgl-spawn" --job memory --no-preflight <job.jsonl >out.jsonl 2>err &
    until [ "$(grep -c '"type":"started"' out.jsonl)" = 100 ]; do sleep 0.2; done
    sleep 1
    # both: the watcher, which was asked, and the supervisor
    for pid in $("$cluster" exec 2 pgrep -f host-agent); do
        most=$("$cluster" exec 2 awk -v sum="$most" '/^VmHWM/ { print sum + $2; exit }' "/proc/$pid/status" 2>/dev/null || echo "$most")
    done
    wait
    limit "host-agent's processes together, memory with 100 processes" "$(awk -v kb="$most" 'BEGIN { print kb / 1024 }')" MB 10
}

header
parts=${PARTS:-start busy probe push lines first memory}
[ "$hosts" -gt 0 ] || parts=$(sed -E 's/\b(start|busy|probe|push)\b//g' <<<"$parts")
case " $parts " in
    *" start "* | *" busy "* | *" probe "* | *" push "*)
        "$cluster" up "$hosts" --quiet >/dev/null
        plan "$hosts"
        meet
        for part in $parts; do
            plan "$hosts"
            case $part in
                start) start start "" ;;
                busy) with_loops start busy ", beside ${BUSY:-2} busy loops" ;;
                probe) probe ;;
                push) with_loops push ;;
            esac
        done
        "$cluster" down ;;
esac
case " $parts " in
    *" lines "* | *" first "* | *" memory "*)
        "$cluster" up 5 --quiet >/dev/null
        plan 5
        meet
        for part in $parts; do
            case $part in lines | first | memory) "$part" ;; esac
        done
        "$cluster" down ;;
esac
