#!/bin/bash
# How quickly files reach the hosts, and back, against what people use: scp one after another (as DGL's copy_files.py does), scp all at
# once, rsync, tar through ssh, raw TCP. Real hosts on this machine, all contenders in each round, medians of ROUNDS, and each figure held
# against its goal as a ratio within this run: absolute numbers are this machine's. Fails at nothing: a busy machine proves nothing.
# Usage: copy.sh [ROUNDS=3] [MB=256]    (files a host for the bulk part)
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3} mb=${2:-256}
root=$PWD
target=${CARGO_TARGET_DIR:-$root/target}
case $target in /*) ;; *) target=$root/$target ;; esac
PATH=${BIN:-$target/release}:$PATH:/usr/sbin
cluster=$root/tests/cluster/cluster.sh
work=$(mktemp -d /var/tmp/dgl-tools-bench-XXXXXX) # not in /tmp, which every host has for itself
export LAB=$work/lab
trap '"$cluster" down || true; rm -rf "$work"' EXIT
cd "$work"
python=$("$root/tests/dgl/python.sh" 2>/dev/null) || python=

on1() { "$cluster" exec 1 sh -c "cd '$work'; PATH='$PATH'; $1"; }

empty() { # their workspaces, which this machine sees
    local h
    for h in $all; do rm -rf "$LAB/$h/srv/ws"; mkdir -p "$LAB/$h/srv/ws/src"; done
}
shell() { # NAME SCRIPT: on host 1; its time and the processor time of the sender with all that it starts, as a line of `figures`
    local real user sys
    empty
    printf '%s\n' "$2" >script
    read -r real user sys < <("$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; TIMEFORMAT='%R %U %S'; { time bash script >/dev/null 2>err; } 2>&1 || echo failed")
    echo "$1 $real $(awk -v u="$user" -v s="$sys" 'BEGIN { print u + s }')" >>figures
}
median() { # NAME [FIELD=2]
    awk -v name="$1" -v field="${2:-2}" '$1 == name { print $field }' figures | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}
goal() { # TEXT A B GOAL: how many times longer A took than B, and what it should be
    awk -v text="$1" -v a="$(median "$2")" -v b="$(median "$3")" -v goal="$4" 'BEGIN {
        r = a / b; printf "%-58s %6.2f s  %6.2f s  %5.2f x  goal %5.2f  %s\n", text, a, b, r, goal, (r >= goal ? "met" : "MISSED") }'
}
plan() { # HOSTS: the records for the first of them, files below src/ to each; part k to host k
    for h in $1; do echo "10.77.0.${h#h}"; done >ip.txt
    ipconf-check ip.txt | part-map --workspace /srv/ws --extra src | jq -c 'select(.kind != "ip_config") | if .type == "file" then .id -= 1 | .of -= 1 else . end' >plan.jsonl
}
own() { # of a file srcK only to host K
    jq -c 'if .type == "file" then .host = (.src | capture("/f(?<k>[0-9]+)$").k | tonumber) else . end' plan.jsonl >own && mv own plan.jsonl
}
push="part-push --progress never <plan.jsonl"

bulk() {
    mkdir -p src
    for k in 0 1 2 3; do head -c "${mb}M" /dev/urandom >"src/f$k"; done
    all="h2 h3 h4 h5"
    plan "$all"; own
    for ((i = 0; i < rounds; i++)); do
        shell scp-one-by-one "k=0; for h in $all; do scp -q src/f\$k \$h:/srv/ws/src/; k=\$((k+1)); done"
        shell scp-at-once "k=0; for h in $all; do scp -q src/f\$k \$h:/srv/ws/src/ & k=\$((k+1)); done; wait"
        shell rsync-at-once "k=0; for h in $all; do rsync -aW --inplace src/f\$k \$h:/srv/ws/ & k=\$((k+1)); done; wait"
        shell ssh-cat "k=0; for h in $all; do ssh -c aes128-gcm@openssh.com \$h 'cat >/srv/ws/f' <src/f\$k & k=\$((k+1)); done; wait"
        shell push-4 "$push"
    done
    goal "4 hosts, $mb MB each: scp one by one / part-push" scp-one-by-one push-4 2.5
    goal "4 hosts, $mb MB each: scp at once / part-push" scp-at-once push-4 1.7
    goal "4 hosts, $mb MB each: rsync at once / part-push" rsync-at-once push-4 1.8
    goal "4 hosts, $mb MB each: ssh cat / part-push" ssh-cat push-4 0.9
    awk -v cpu="$(median push-4 3)" -v mb="$mb" 'BEGIN { r = cpu / (mb * 4 * 1048576 / 1e9)
        printf "%-58s %6.2f s a GB                  goal  0.65  %s\n", "sender CPU of part-push and its ssh", r, (r <= 0.65 ? "met" : "MISSED") }'
    rm src/f1 src/f2 src/f3
    all=h2
    plan "$all"
    for ((i = 0; i < rounds; i++)); do
        shell scp-1 "scp -q src/f0 h2:/srv/ws/"
        shell rsync-1 "rsync -aW --inplace src/f0 h2:/srv/ws/"
        shell push-1 "$push"
    done
    goal "1 host, $mb MB: scp / part-push" scp-1 push-1 1.4
    goal "1 host, $mb MB: rsync / part-push" rsync-1 push-1 1.9
    empty
    head -c 2G /dev/zero >src/f1
    plan "$all"
    "$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; /usr/bin/time -f '%M' part-push --progress never <plan.jsonl 2>&1 >/dev/null" |
        awk '{ printf "%-58s %6.1f MB                      goal 64.00  %s\n", "peak memory, 2 GB file", $1 / 1024, ($1 < 65536 ? "met" : "MISSED") }'
    rm -rf src
}

small() {
    mkdir -p src
    (cd src && for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; (cd $d && head -c 4096000 /dev/urandom | split -a 3 -b 4096 -d - f); done)
    all="h2 h3 h4 h5"
    plan "$all"
    shell scp-small "for h in $all; do scp -qr src \$h:/srv/ws/ & done; wait" # minutes: once
    for ((i = 0; i < rounds; i++)); do
        shell tar-small "for h in $all; do tar -cf - src | ssh -c aes128-gcm@openssh.com \$h tar -xf - -C /srv/ws & done; wait"
        shell push-small "$push"
        printf '%s\n' "$push" >script
        "$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; TIMEFORMAT='push-nothing %R 0'; { time bash script >/dev/null 2>err; } 2>>figures"
    done
    goal "10,000 files of 4 KB, 4 hosts: scp -r / part-push" scp-small push-small 20
    goal "10,000 files of 4 KB, 4 hosts: tar / part-push" tar-small push-small 0.5
    awk -v s="$(median push-nothing)" 'BEGIN { printf "%-58s %6.2f s                       goal  1.00  %s\n", "nothing to do, 10,000 files, 4 hosts", s, (s < 1 ? "met" : "MISSED") }'
    rm -rf src
}

# Raw TCP, all of a file to one host and the other side's word that it has it; python is on every test machine.
cat >sink.py <<'P'
import socket
s = socket.create_server(("0.0.0.0", 7000))
while True:
    c, _ = s.accept()
    while c.recv(1 << 20):
        pass
    c.sendall(b"y")
    c.close()
P
cat >source.py <<'P'
import socket, sys
s = socket.create_connection((sys.argv[1], 7000))
s.sendfile(open(sys.argv[2], "rb"))
s.shutdown(socket.SHUT_WR)
s.recv(1)
P
slow() {
    all=h2
    mkdir -p noise graph
    head -c "$((mb * 2))M" /dev/urandom >noise/f
    if [ -n "$python" ]; then
        "$python" "$root/tests/dgl/partition.py" --out made --num-parts 2 --num-nodes 100000 >/dev/null 2>&1
        while [ "$(stat -c %s graph/f 2>/dev/null || echo 0)" -lt $((mb << 20)) ]; do cat made/part*/graph.dgl >>graph/f; done
    fi
    on1 "ssh -n h2 'setsid python3 $work/sink.py >/dev/null 2>&1 </dev/null &'"
    sleep 1
    for kind in noise graph; do
        [ -s "$kind/f" ] || continue
        mkdir src && mv "$kind/f" src/f
        plan "$all"
        for ((i = 0; i < rounds; i++)); do
            shell "tcp-$kind" "python3 source.py 10.77.0.2 src/f"
            shell "push-$kind" "$push"
            shell "login-$kind" "part-push --progress never --dry-run <plan.jsonl"
        done
        # connection time apart
        awk -v a="$(median "push-$kind")" -v b="$(median "login-$kind")" -v n="pushed-$kind" 'BEGIN { print n, a - b, 0 }' >>figures
        rm -rf src
    done
    goal "1 Gbit/s, incompressible: raw TCP / part-push" tcp-noise pushed-noise 0.93
    if [ -n "$python" ]; then goal "1 Gbit/s, graph.dgl: raw TCP / part-push" tcp-graph pushed-graph 2; fi
}

printf '%-58s %8s  %8s\n' "" "other" "ours"
"$cluster" up 5
bulk
small
"$cluster" down
"$cluster" up 2 1gbit
slow
