#!/bin/bash
# What it costs to look into a job that runs. dgl-stacks on 4 hosts with 16 Pythons each, of which one computes:
# how long it takes, and how fast that one goes meanwhile, by its iterations a second and by those a second of its own processor time
# (which tells whether it is held up, where the hosts share this machine's processors). Then the same where all 64 compute, beside
# dgl-stacks --record; what the recorders cost and what they send. Then what the supervisor of 16 processes on one host costs with nothing
# to watch, and with the stall watch as it comes. A table, and lines of BENCH_JSON where that is set. Fails at nothing: a busy machine
# proves nothing.
# Usage: stacks.sh [ROUNDS=5] [SECONDS-OF-WATCHING=60]
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-5} seconds=${2:-60}
export SHM=16m

# Two threads, of which one computes where BUSY is the rank or all; how often it went round, by both clocks, goes to a file of its rank 5
# times a second.
cat >job.py <<'PY'
import os, threading, time
def waits():
    while not os.path.exists("go"):
        time.sleep(0.5)
def computes():
    rounds = 0
    while not os.path.exists("go"):
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            for _ in range(1000):
                pass
            rounds += 1
        with open(f"rounds.{rank}.new", "w") as file:
            file.write(f"{rounds} {time.monotonic()} {time.process_time()}\n")
        os.replace(f"rounds.{rank}.new", f"rounds.{rank}")
rank = os.environ["RANK"]
threading.Thread(target=waits, name="loader").start()
computes() if os.environ.get("BUSY") in (rank, "all") else waits()
PY

job() { # HOSTS PROCESSES: records of a job of Pythons
    seq -f 10.77.0.%g "$1" >ip_config.txt
    ipconf-check ip_config.txt | jq -c --argjson p "$2" --arg cwd "$work" '., (. as $h | range($p) | {type: "process", id: ($h.id * $p + .),
        of: ($h.of * $p), host: $h.id, ip: $h.ip, role: "worker", rank: ($h.id * $p + .), $cwd,
        env: {RANK: "\($h.id * $p + .)", BUSY: $ENV.BUSY}, argv: ["python3", "job.py"]})'
}
on1() { "$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; $1"; }

# ---- dgl-stacks -----------------------------------------------------------------------------------------------------

"$cluster" up 4 --quiet >/dev/null
start() { # RANK-THAT-COMPUTES|all: the job on 4 hosts, until it has settled
    BUSY=$1 job 4 16 >job.jsonl
    on1 "DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-spawn --no-preflight --job bench <job.jsonl >run.jsonl 2>run.txt" &
    until [ "$(grep -c '"type":"started"' run.jsonl 2>/dev/null)" = 64 ] && [ -e rounds.0 ]; do sleep 0.2; done
    sleep 5
}
start 0

speed() { # NAME SECONDS-FILE: a second's iterations between two readings of `rounds`, by both clocks
    awk -v name="$1" 'NR == 1 { n = $1; wall = $2; cpu = $3 } END { printf "%s %.0f %.0f\n", name, ($1 - n) / ($2 - wall), ($1 - n) / ($3 - cpu) }' "$2" >>figures
}
during() { # NAME COMMAND: how fast the busy one goes while it runs
    local begun status=0
    cat rounds.0 >readings
    begun=$(date +%s%N)
    on1 "$2" || status=$?
    awk -v name="$1" -v ns="$(($(date +%s%N) - begun))" 'BEGIN { printf "%s.took %.3f\n", name, ns / 1e9 }' >>figures
    sleep 0.3
    cat rounds.0 >>readings
    speed "$1" readings
    return "$status"
}
stacks="DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-stacks --job bench --format jsonl <job.jsonl"
on1 "$stacks >stacks.jsonl" # brings host-agent, and opens what the page cache has not
for ((round = 0; round < rounds; round++)); do
    during nothing "sleep 2"
    during busy "timeout 2 sh -c 'while :; do :; done' || :"
    during stacks "$stacks >stacks.jsonl"
    during local "cat /proc/loadavg >/dev/null; env PATH='$PATH' DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-stacks --host 0 --job bench --format jsonl <job.jsonl >one.jsonl"
done
echo
header
printf 'read: %s processes, %s threads, of which %s have a system call\n' \
    "$(jq -s 'map(select(.type == "stack" and .threads != [])) | length' stacks.jsonl)" \
    "$(jq -s 'map(select(.type == "stack") | .threads[]) | length' stacks.jsonl)" \
    "$(jq -s 'map(select(.type == "stack") | .threads[] | select(.system_call)) | length' stacks.jsonl)"
limit "dgl-stacks, 4 hosts x 16 Pythons" "$(median stacks.took)" s 2
limit "dgl-stacks, 1 host x 16 Pythons" "$(median local.took)" s
compare "a busy Python's rounds a second, beside dgl-stacks and alone" "$(median stacks)" "$(median nothing)" /s
compare "  beside a busy loop of 2 s and alone" "$(median busy)" "$(median nothing)" /s
compare "  a second of its own processor time, beside it and alone" "$(median stacks 3)" "$(median nothing 3)" /s
touch go
wait
rm go rounds.*

# ---- dgl-stacks --record --------------------------------------------------------------------------------------------

spent() { # PID: nanoseconds of its threads
    cat /proc/"$1"/task/*/schedstat | awk '{ ns += $1 } END { print ns }'
}
recorders() { # nanoseconds of the supervisors, which record, and how many they are
    local pid ns=0 count=0
    for pid in $(pgrep -f '^host-agent supervise'); do ns=$((ns + $(spent "$pid"))) count=$((count + 1)); done
    echo "$ns $count"
}
around() { # NAME SECONDS: how fast all 64 go in that time, together, and what recorders spend, in percent of a core
    local before after
    before=$(recorders)
    head -qn 1 rounds.?? rounds.? >readings.before
    sleep "$2"
    head -qn 1 rounds.?? rounds.? >readings.after
    after=$(recorders)
    paste readings.before readings.after | awk -v name="$1" '{ rounds += $4 - $1; wall += $5 - $2; cpu += $6 - $3 }
        END { printf "%s %.0f %.0f\n", name, rounds * NR / wall, rounds / cpu }' >>figures
    awk -v name="$1.recorders" -v s="$2" '{ ns[NR] = $1; n = $2 } END { printf "%s %.3f %d\n", name, (ns[2] - ns[1]) / s / 1e7, n }' \
        <(printf '%s\n' "$before" "$after") >>figures
}
start all
for ((round = 0; round < rounds; round++)); do
    around alone 20
    on1 "DGL_TOOLS_CONNECT_TIMEOUT=60s dgl-stacks --job bench --record 30s --format jsonl <job.jsonl >profile.jsonl" &
    recording=$!
    sleep 8
    around recorded 20
    wait "$recording"
done
printf 'recorded: %s processes, 10 looks a second for 30 s; looks that each counted: %s to %s of 300; missed: %s; bytes: %s\n' \
    "$(jq -s 'map(select(.type == "profile")) | length' profile.jsonl)" "$(jq -s 'map(.samples? // empty) | min' profile.jsonl)" \
    "$(jq -s 'map(.samples? // empty) | max' profile.jsonl)" "$(jq -s 'map(.missed? // empty) | add' profile.jsonl)" \
    "$(grep '"type":"profile"' profile.jsonl | wc -c)"
compare "64 busy Pythons' rounds a second, beside --record and alone" "$(median recorded)" "$(median alone)" /s
compare "  a second of their own processor time" "$(median recorded 3)" "$(median alone 3)" /s 0.99
limit "recorders of 64 processes, a process" "$(awk -v all="$(median recorded.recorders)" 'BEGIN { print all / 64 }')" % 2
touch go
wait
"$cluster" down
rm go

# ---- what watching costs --------------------------------------------------------------------------------------------

below() { # PID: it and all that descend from it
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do below "$child"; done
}
supervisor() { # PID of dgl-spawn
    local pid
    for pid in $(below "$1"); do
        ! tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '^[^ ]*host-agent supervise ' || { echo "$pid"; return; }
    done
}
watched() { # NAME FLAGS...: percent of a core
    local name=$1 pid agent before
    shift
    rm -f go
    dgl-spawn --connect local --no-preflight "$@" <local.jsonl >"$name.jsonl" 2>"$name.txt" &
    pid=$!
    until [ "$(grep -c '"type":"started"' "$name.jsonl" 2>/dev/null)" = 16 ]; do sleep 0.2; done
    sleep 10
    agent=$(supervisor "$pid")
    before=$(spent "$agent")
    sleep "$seconds"
    awk -v name="$name" -v ns="$(($(spent "$agent") - before))" -v s="$seconds" 'BEGIN { printf "%s %.3f\n", name, ns / s / 1e7 }' >>figures
    touch go
    wait "$pid"
}
echo 127.0.0.1 | ipconf-check | jq -c --arg cwd "$work" '., (. as $h | range(16) | {type: "process", id: ., of: 16, host: 0, ip: $h.ip,
    role: "worker", rank: ., $cwd, env: {RANK: "\(.)"}, argv: ["python3", "job.py"]})' >local.jsonl
watched unwatched --stall-timeout 0s
watched stalls
limit "supervisor of 16 Pythons, nothing watched" "$(median unwatched)" %
limit "  stalls, as it comes" "$(median stalls)" %
