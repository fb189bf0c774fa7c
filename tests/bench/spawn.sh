#!/bin/bash
# What dgl-spawn costs: many hosts with a real sshd each, 5 small processes a host, started and ended; how that compares with ssh
# 0.2 s apart, as launch.py does; how time and memory grow with the hosts; what a job costs that only waits; how fast loud output
# comes. Prints numbers and fails at nothing: a busy machine proves nothing. HOSTS=N takes fewer hosts than 250.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
PATH=$target/${PROFILE:-release}:$PATH
export LAB=${LAB:-/var/tmp/dgl-tools-bench-$$} MAXSTARTUPS=100 SHM=16m
cluster=$PWD/tests/cluster/cluster.sh
many=${HOSTS:-250}
work=$(mktemp -d "$target/bench-XXXXXX")
trap '"$cluster" down; rm -rf "$work" "$LAB"' EXIT
cd "$work"

job() { # HOSTS PROCESSES COMMAND: records
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "10.%d.%d.%d\n", 77 + int(i / 62500), int(i / 250) % 250, 1 + i % 250 }' | ipconf-check |
        jq -c --argjson p "$2" --arg command "$3" '., (. as $h | range($p) | {type: "process", id: ($h.id * $p + .), of: ($h.of * $p),
            host: $h.id, ip: $h.ip, role: "worker", rank: ($h.id * $p + .), argv: ["sh", "-c", $command]})'
}

now() { date +%s%N; }
seconds() { awk -v ns="$(($(now) - $1))" 'BEGIN { printf "%.2f", ns / 1e9 }'; }
say() { printf '%-58s %s\n' "$1" "$2"; }
# dgl-spawn on host 1; the CPU of it, user and system, goes to ./used
# shellcheck disable=SC2016 # the inner shell's
spawn() {
    "$cluster" exec 1 env PATH="$PATH" bash -c 'cd "$1"; TIMEFORMAT="%U %S"; time dgl-spawn --connect-timeout 60s >out.jsonl 2>err' bash "$work" 2>used ||
        { cat err >&2; false; }
}

begun=$(now)
"$cluster" up "$many"
say "$many hosts up" "$(seconds "$begun") s"
# a .bashrc that loads conda or pyenv costs each login 0.2 s of CPU, and all the hosts share these cores
for ((k = 1; k <= many; k++)); do "$cluster" exec "$k" mount --bind /dev/null "$HOME/.bashrc" 2>/dev/null || true; done

job "$many" 5 true >job.jsonl
begun=$(now)
spawn <job.jsonl
took=$(seconds "$begun")
say "$many hosts x 5 processes, started and ended" "$took s"
say "  of dgl-spawn's own CPU (user system)" "$(cat used) s"

few=$((many < 10 ? many : 10))
begun=$(now)
# shellcheck disable=SC2016 # the inner shell's
"$cluster" exec 1 bash -c 'for ((k = 1; k <= $1; k++)); do for p in 1 2 3 4 5; do ssh -o BatchMode=yes "10.77.0.$k" true & sleep 0.2; done; done; wait' bash "$few"
by_ssh=$(seconds "$begun")
say "  by ssh 0.2 s apart, as launch.py: $few hosts x 5" "$by_ssh s"
say "  so dgl-spawn is quicker a host by" "$(awk -v a="$by_ssh" -v b="$took" -v few="$few" -v n="$many" 'BEGIN { printf "%.0f times", a / few / (b / n) }')"
begun=$(now)
# shellcheck disable=SC2016
"$cluster" exec 1 bash -c 'for ((k = 1; k <= 4; k++)); do ssh -o BatchMode=yes "10.77.0.$k" true & done; wait'
by_ssh=$(seconds "$begun")
job 4 5 true >job.jsonl
begun=$(now)
spawn <job.jsonl
say "4 hosts x 5 processes; plain ssh, once a host" "$(seconds "$begun") s; $by_ssh s"

job "$many" 5 'sleep 20' >job.jsonl
"$cluster" exec 1 env PATH="$PATH" dgl-spawn --connect-timeout 60s --no-preflight <job.jsonl >out.jsonl 2>err &
until [ "$(grep -c '"type":"started"' out.jsonl)" = $((many * 5)) ]; do sleep 0.2; done
pid=$(pgrep -n -f '^dgl-spawn --connect-timeout 60s --no-preflight')
ticks() { awk '{ print $14 + $15 }' "/proc/$pid/stat"; }
sleep 2
before=$(ticks)
sleep 10
say "a job of $many hosts that waits: dgl-spawn's CPU" "$(awk -v t=$(($(ticks) - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN { printf "%.2f %%", t / hz * 10 }')"
say "  memory at most" "$(awk '/VmHWM/ { print $2 / 1000 " MB" }' "/proc/$pid/status")"
wait

# Hosts that only speak as a host's script does, for what is the launcher's own: thousands of real ones need more than this machine.
cat >host <<'EOF'
IFS= read -r script
token=$(printf %s "$script" | base64 -d | sed -n "1s/.*'\(.*\) runs'.*/\1/p")
printf '\n%s runs\nready\n' "$token"
while read -r word _; do
    case $word in
        start) printf 'pid 0 1\nexited 0 0\n' ;;
        alive) echo alive ;;
        end) printf 'over 0\n\n%s ends 0\n' "$token"; exit ;;
    esac
done
EOF
for n in 500 1000 2000; do
    job "$n" 1 true >job.jsonl
    begun=$(now)
    dgl-spawn --connect-timeout 60s --connect 'sh ./host' <job.jsonl >out.jsonl 2>err &
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
