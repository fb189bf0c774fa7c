#!/bin/bash
# What it costs a tool to have an agent on many hosts: by a login each, to one real sshd of this machine that is known by as many names,
# and by agents that dial in; all agents are real and run on this machine. Then with stand-ins that only speak as agents do, for what is
# the tool's own: time from the call to its end, processor time and memory of the tool. The tool is dgl-reap --list, which asks each host
# one thing. Prints a table, and a JSON object a line into the file BENCH_JSON where that is set. Fails at nothing: a busy machine
# proves nothing: agents that all start at once on a few cores are slower than logins one after the other, and only the tool's own CPU and
# memory compare. NO_LOGINS=1 leaves out the logins, which need root. The stand-ins: cargo build --release -p remote --example dialers
# Usage: dial.sh [HOSTS=500] [SIMULATED='500 1000 2000'] [ROUNDS=3]
sshd=
at_end() { [ -z "$sshd" ] || kill "$sshd"; }
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
hosts=${1:-500} simulated=${2-500 1000 2000} rounds=${3:-3}
dialers=$target/${PROFILE:-release}/examples/dialers
export XDG_CACHE_HOME=$work/cache DGL_TOOLS_CONNECT_TIMEOUT=5m
ulimit -n "$(ulimit -Hn)"

records() { # COUNT
    jq -cn --argjson n "$1" 'range($n) | {type: "host", id: ., of: $n, ip: "127.0.\(. / 250 | floor + 1).\(. % 250 + 1)",
        port: 30050, name: "n\(. + 1)"}'
}
# Runs a tool; a line NAME SECONDS CPU_SECONDS MEGABYTES in ./figures
measure() { # NAME ARG...
    python3 - "$@" <<'PY' >>figures
import os, sys, time
begun = time.time()
null = os.open(os.devnull, os.O_WRONLY)
records = os.open("hosts.jsonl", os.O_RDONLY)
said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ,
    file_actions=[(os.POSIX_SPAWN_DUP2, records, 0), (os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, said, 2)])
_, status, used = os.wait4(pid, 0)
if status:
    sys.exit(open("said").read())
print(sys.argv[1], round(time.time() - begun, 3), round(used.ru_utime + used.ru_stime, 3), round(used.ru_maxrss / 1000, 1))
PY
}
row() { # NAME TEXT
    printf '%-44s %8s s %8s s %8s MB\n' "$2" "$(median "$1")" "$(median "$1" 3)" "$(median "$1" 4)"
    # shellcheck disable=SC2016
    tell --arg what "$2" --arg s "$(median "$1")" --arg cpu "$(median "$1" 3)" --arg mb "$(median "$1" 4)" \
        '{type: "measure", what: $what, ours: ($s | tonumber), unit: "s", cpu_s: ($cpu | tonumber), mem_mb: ($mb | tonumber)}'
}

cat >engine <<'EOF2'
#!/bin/sh
for ((k = 1; k <= $2; k++)); do SLURMD_NODENAME=n$k "$1" & done
wait
EOF2
sed -i '1s/sh$/bash/' engine
chmod +x engine
begin_sshd() { # of this machine, for all of its names
    ssh-keygen -q -t ed25519 -N '' -f id
    ssh-keygen -q -t ed25519 -N '' -f key
    cat >sshd_config <<EOF2
Port 2299
HostKey $work/key
AuthorizedKeysFile $work/id.pub
StrictModes no
PidFile none
MaxStartups 1000
UsePAM no
EOF2
    cat >ssh_config <<EOF2
Host *
  Port 2299
  IdentityFile $work/id
  IdentitiesOnly yes
  UserKnownHostsFile $work/known
EOF2
    sed -n 's/^\(ssh-ed25519 [^ ]*\).*/[127.0.*]:2299 \1/p' key.pub >known
    mkdir -p /run/sshd
    "$(command -v sshd)" -D -f sshd_config 2>/dev/null &
    sshd=$!
    sleep 1
}
[ -n "${NO_LOGINS:-}" ] || begin_sshd

printf '%-44s %10s %10s %11s\n' "medians of $rounds" time "its CPU" "its memory"
records "$hosts" | jq -c '.login = .ip' >hosts.jsonl
for ((round = 0; round < rounds; round++)); do
    [ -n "${NO_LOGINS:-}" ] || measure logins env DGL_TOOLS_SSH_CONFIG=ssh_config dgl-reap --list --connect ssh2
    measure dialed dgl-reap --list --connect "dial ./engine {agent} $hosts"
done
[ -n "${NO_LOGINS:-}" ] || row logins "$hosts hosts of this machine, a login each"
row dialed "$hosts hosts of this machine, dialed in"
for count in $simulated; do
    records "$count" >hosts.jsonl
    for ((round = 0; round < rounds; round++)); do
        measure "simulated$count" dgl-reap --list --connect "dial $dialers {ticket} $count"
    done
    row "simulated$count" "$count stand-ins, dialed in"
done
