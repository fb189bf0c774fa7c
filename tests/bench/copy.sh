#!/bin/bash
# How quickly files reach the hosts against what people use: scp one after another (as DGL's copy_files.py does), scp all at once, rsync,
# tar through ssh, ssh with a cheap cipher and cat, raw TCP. Real hosts on this machine, all contenders in each round, medians, and each
# held against its goal as a ratio within this run: absolute numbers are this machine's. Fails at nothing: a busy machine proves nothing.
# Usage: copy.sh [ROUNDS=3] [MB=256]    (MB a host for the bulk part)
# BENCH_JSON=FILE  the same figures as JSON lines
# DISK=4g        the hosts' disks, in memory; with an empty value they all share this machine's
# HOSTS=250      for the part that logs in to many
# DGL_TOOLS=DIR  DGL's tools folder: its copy_files.py is a contender too
# OLD=DIR        the tools of an older build are contenders too, where the launching machine is among the hosts
# PARTS='bulk one here small tiny slow far shared changed delay many'
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-3} mb=${2:-256}
export DISK=${DISK-4g}
python=$("$root/tests/dgl/python.sh" 2>/dev/null) || python=
gcm=aes128-gcm@openssh.com
# as part-push asks for it: what is left between the two is what is done with the connection
quick="-c $gcm -o KexAlgorithms=^curve25519-sha256"

on1() { "$cluster" exec 1 sh -c "cd '$work'; PATH='$PATH'; $1"; }

empty() { # their workspaces
    local h
    for h in $all; do "$cluster" exec "${h#h}" sh -c 'rm -rf /srv/ws; mkdir -p /srv/ws/src'; done
}
again() { # NAME SCRIPT: on host 1; its time and the processor time of the sender with all that it starts, as a line of `figures`
    local real user sys
    printf '%s\n' "$2" >script
    read -r real user sys < <("$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; TIMEFORMAT='%R %U %S'; { time bash script >/dev/null 2>err; } 2>&1 || echo failed")
    echo "$1 $real $(awk -v u="$user" -v s="$sys" 'BEGIN { print u + s }')" >>figures
}
shell() { # the same on hosts that have nothing
    empty
    again "$@"
}
plan() { # HOSTS: the records for them, files below src/ to each
    for h in $1; do echo "10.77.0.${h#h}"; done >ip.txt
    ipconf-check ip.txt | part-map --workspace /srv/ws --extra src 2>err | jq -c 'select(.kind != "ip_config") | if .type == "file" then .id -= 1 | .of -= 1 else . end' >plan.jsonl
}
own() { # of a file fK only to host K
    jq -c 'if .type == "file" then .host = (.src | capture("/f(?<k>[0-9]+)$").k | tonumber) else . end' plan.jsonl >own && mv own plan.jsonl
}
each() { echo "k=0; for h in $all; do $1 & k=\$((k+1)); done; wait"; }
push="part-push --progress never <plan.jsonl"
push_ssh="part-push --wire ssh --progress never <plan.jsonl"
look="part-push --progress never --dry-run <plan.jsonl"

bulk() {
    local k i
    mkdir -p src
    for k in 0 1 2 3; do head -c "${mb}M" /dev/urandom >"src/f$k"; done
    all="h2 h3 h4 h5"
    plan "$all"; own
    for ((i = 0; i < rounds; i++)); do
        shell scp-one-by-one "k=0; for h in $all; do scp -q src/f\$k \$h:/srv/ws/src/; k=\$((k+1)); done"
        shell scp "$(each "scp -q src/f\$k \$h:/srv/ws/src/")"
        shell scp-gcm "$(each "scp -q -c $gcm src/f\$k \$h:/srv/ws/src/")"
        shell rsync "$(each "rsync -aW --inplace src/f\$k \$h:/srv/ws/")"
        shell cat "$(each "ssh -c $gcm \$h 'cat >/srv/ws/f' <src/f\$k")"
        shell cat-quick "$(each "ssh $quick \$h 'cat >/srv/ws/f' <src/f\$k")"
        shell push "$push"
        shell push-ssh "$push_ssh"
        again scp-back "rm -rf back; mkdir back; $(each "scp -q \$h:/srv/ws/src/f\$k back/")"
        again pull "rm -rf back; ipconf-check ip.txt | part-pull --workspace /srv/ws --to back src"
        shell login "$(each "ssh -n -c $gcm \$h true")"
        shell look "$look"
    done
    goal "4 hosts, $mb MB each: scp one by one / part-push" scp-one-by-one push 4
    goal "4 hosts, $mb MB each: scp at once / part-push" scp push 2.6
    goal "4 hosts, $mb MB each: scp -c aes128-gcm at once / part-push" scp-gcm push
    goal "4 hosts, $mb MB each: rsync at once / part-push" rsync push 3
    goal "4 hosts, $mb MB each: ssh cat at once / part-push" cat push 1.8
    goal "  with the quick key exchange too" cat-quick push
    goal "4 hosts, $mb MB each: part-push --wire ssh / part-push" push-ssh push
    goal "4 hosts, $mb MB each, back again: scp at once / part-pull" scp-back pull
    # a key exchange of OpenSSH 9 costs 90 ms: with it, and apart
    gb() { awk -v a="$(median "$1" 3)" -v b="$(median "${2:-none}" 3)" -v mb="$mb" 'BEGIN { printf "%.3f", (a - b) / (mb * 4 * 1048576 / 1e9) }'; }
    compare "sender's CPU a GB: scp / part-push" "$(gb scp)" "$(gb push)" s
    compare "sender's CPU a GB: ssh cat / part-push" "$(gb cat)" "$(gb push)" s
    compare "sender's CPU a GB, login apart: part-push --wire ssh / part-push" "$(gb push-ssh look)" "$(gb push look)" s
    compare "sender's CPU a GB, login apart: ssh cat / part-push" "$(gb cat login)" "$(gb push look)" s
    limit "sender's CPU a GB of part-push, login apart" "$(gb push look)" s 0.65
    [ -z "${DGL_TOOLS:-}" ] || by_dgl
    rm -r src
}

by_dgl() { # a partition for each host, by DGL's script and by the drop-in for it
    local k i
    mkdir -p out code
    cp "$root"/tests/dgl/*.py code/
    for k in 0 1 2 3; do
        mkdir "out/part$k"
        # as much as part-map looks at
        { printf '\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd'; cat "src/f$k"; } >"out/part$k/graph.dgl"
        for i in node edge; do printf '\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd' >"out/part$k/${i}_feat.dgl"; done
        jq -n --arg k "$k" '{("part-" + $k): {node_feats: "out/part\($k)/node_feat.dgl", edge_feats: "out/part\($k)/edge_feat.dgl", part_graph: "out/part\($k)/graph.dgl"}}'
    done | jq -s 'add + {graph_name: "g", num_parts: 4, num_nodes: 4, num_edges: 4, ntypes: {_N: 0}, etypes: {"_N:_E:_N": 0},
        node_map: {_N: [[0, 1], [1, 2], [2, 3], [3, 4]]}, edge_map: {"_N:_E:_N": [[0, 1], [1, 2], [2, 3], [3, 4]]}}' >out/g.json
    for ((i = 0; i < rounds; i++)); do
        shell copy-files "python3 '$DGL_TOOLS/copy_files.py' --ip_config ip.txt --workspace /srv/ws --rel_data_path data --part_config out/g.json --script_folder code"
        shell dgl-copy "'$root/tools/dgl-copy/dgl-copy' --ip_config ip.txt --workspace /srv/ws --rel_data_path data --part_config out/g.json --script_folder code"
    done
    goal "4 hosts, a partition of $mb MB each: copy_files.py / dgl-copy" copy-files dgl-copy 2.5
    rm -r out code
}

one() {
    local i
    mkdir -p src
    head -c "${mb}M" /dev/urandom >src/f0
    all=h2
    plan "$all"
    for ((i = 0; i < rounds; i++)); do
        shell scp-1 "scp -q src/f0 h2:/srv/ws/"
        shell rsync-1 "rsync -aW --inplace src/f0 h2:/srv/ws/"
        shell cat-1 "ssh -c $gcm h2 'cat >/srv/ws/f' <src/f0"
        shell cat-quick-1 "ssh $quick h2 'cat >/srv/ws/f' <src/f0"
        shell push-1 "$push"
    done
    goal "1 host, $mb MB: scp / part-push" scp-1 push-1 2.5
    goal "1 host, $mb MB: rsync / part-push" rsync-1 push-1 2.5
    goal "1 host, $mb MB: ssh cat / part-push" cat-1 push-1
    goal "  with the quick key exchange too" cat-quick-1 push-1
    empty
    head -c 2G /dev/zero >src/f1
    plan "$all"
    limit "peak memory, 2 GB file" "$("$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; /usr/bin/time -f '%M' part-push --progress never <plan.jsonl 2>&1 >/dev/null" |
        awk '{ print $1 / 1024 }')" MB 64
    rm -r src
}

# The machine on which the tool runs, alone and among the hosts: by itself, and by a login as any other host.
here() {
    local i k login old=""
    login=$("$cluster" exec 1 id -un)@10.77.0.1
    [ -z "${OLD:-}" ] || old="PATH='$OLD':\$PATH;"
    by_login() { jq -c --arg login "$login" 'if .ip == "10.77.0.1" then .login = $login else . end' plan.jsonl >login.jsonl; }
    mkdir -p src
    for k in 0 1 2 3; do head -c "${mb}M" /dev/urandom >"src/f$k"; done
    for all in h1 "h1 h2 h3 h4"; do
        k=${all//[^h]/} k=${#k}
        plan "$all"; own
        jq -c --argjson of "$k" 'if .type == "file" then select(.host < $of) | .of = $of else . end' plan.jsonl >some && mv some plan.jsonl
        by_login
        for ((i = 0; i < rounds; i++)); do
            shell "cp-$k" "mkdir -p /srv/ws/src; cp src/f0 /srv/ws/src/"
            for way in plan login; do
                shell "push-$way-$k" "part-push --progress never <$way.jsonl"
                again "pull-$way-$k" "rm -rf back; part-pull --progress never --workspace /srv/ws --to back src <$way.jsonl"
                [ -z "$old" ] || shell "old-$way-$k" "$old part-push --progress never <$way.jsonl"
            done
        done
    done
    limit "this machine alone, $mb MB: part-push / cp" "$(awk -v a="$(median push-plan-1)" -v b="$(median cp-1)" 'BEGIN { print a / b }')" x 1.5
    goal "this machine alone, $mb MB: part-push by a login / without" push-login-1 push-plan-1
    goal "4 hosts with this machine, $mb MB each: part-push by a login / without" push-login-4 push-plan-4
    goal "4 hosts with this machine, $mb MB each: part-pull by a login / without" pull-login-4 pull-plan-4
    if [ -n "$old" ]; then
        goal "this machine alone, by a login: part-push of OLD / part-push" old-login-1 push-login-1
        goal "this machine alone, without: part-push of OLD / part-push" old-plan-1 push-plan-1
        goal "4 hosts with this machine, by a login: part-push of OLD / part-push" old-login-4 push-login-4
        goal "4 hosts with this machine, without: part-push of OLD / part-push" old-plan-4 push-plan-4
    fi
    rm -r src
}

small() {
    local d i
    mkdir -p src
    (cd src && for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; (cd $d && head -c 4096000 /dev/urandom | split -a 3 -b 4096 -d - f); done)
    all="h2 h3 h4 h5"
    plan "$all"
    # minutes: once each
    shell scp-small-one-by-one "for h in $all; do scp -qr src \$h:/srv/ws/; done"
    shell scp-small "$(each "scp -qr src \$h:/srv/ws/")"
    for ((i = 0; i < rounds; i++)); do
        shell tar-small "$(each "tar -cf - src | ssh -c $gcm \$h tar -xf - -C /srv/ws")"
        shell tar-quick-small "$(each "tar -cf - src | ssh $quick \$h tar -xf - -C /srv/ws")"
        shell push-small "$push"
        again push-nothing "$push"
    done
    goal "10,000 files of 4 KB, 4 hosts: scp -r one by one / part-push" scp-small-one-by-one push-small 25
    goal "10,000 files of 4 KB, 4 hosts: scp -r at once / part-push" scp-small push-small
    goal "10,000 files of 4 KB, 4 hosts: tar at once / part-push" tar-small push-small 1.5
    goal "  with the quick key exchange too" tar-quick-small push-small
    limit "nothing to do, 10,000 files, 4 hosts" "$(median push-nothing)" s 1
    all=h2
    plan "$all"
    shell scp-small-1 "scp -qr src h2:/srv/ws/"
    for ((i = 0; i < rounds; i++)); do
        shell tar-small-1 "tar -cf - src | ssh -c $gcm h2 tar -xf - -C /srv/ws"
        shell push-small-1 "$push"
    done
    goal "10,000 files of 4 KB, 1 host: scp -r / part-push" scp-small-1 push-small-1 25
    goal "10,000 files of 4 KB, 1 host: tar / part-push" tar-small-1 push-small-1 1.5
    rm -r src
}

# 100,000 files of 1 KB for 4 hosts: what the tool takes for them.
tiny() {
    local d took
    mkdir -p src
    (cd src && for d in $(seq 0 99); do mkdir "$d"; (cd "$d" && head -c 1024000 /dev/urandom | split -a 3 -b 1024 -d - f); done)
    all="h2 h3 h4 h5"
    plan "$all"
    shell push-tiny "$push"
    limit "100,000 files of 1 KB, 4 hosts" "$(median push-tiny)" s
    limit "  of the sender's CPU" "$(median push-tiny 3)" s
    empty
    took=$("$cluster" exec 1 bash -c "cd '$work'; PATH='$PATH'; /usr/bin/time -f '%M' part-push --progress never <plan.jsonl 2>&1 >/dev/null")
    limit "  peak memory" "$(awk '{ print $1 / 1024 }' <<<"$took")" MB
    rm -r src
}

# Raw TCP, all of a file to one host and the other side's word that it has it; python is on every test machine.
cp "$root/tests/bench/raw_tcp.py" . # the hosts may not see the repository
raw_tcp="python3 $work/raw_tcp.py"
slow() {
    local kind i
    all=h2
    mkdir -p noise graph
    head -c "$((mb * 2))M" /dev/urandom >noise/f
    if [ -n "$python" ]; then
        "$python" "$root/tests/dgl/partition.py" --out made --num-parts 2 --num-nodes 100000 >/dev/null 2>&1
        while [ "$(stat -c %s graph/f 2>/dev/null || echo 0)" -lt $((mb << 20)) ]; do cat made/part*/graph.dgl >>graph/f; done
    fi
    on1 "ssh -n h2 'setsid $raw_tcp sink 0.0.0.0 >/dev/null 2>&1 </dev/null &'"
    sleep 1
    for kind in noise graph; do
        [ -s "$kind/f" ] || continue
        mkdir src && mv "$kind/f" src/f
        plan "$all"
        for ((i = 0; i < rounds; i++)); do
            shell "tcp-$kind" "$raw_tcp source 10.77.0.2 src/f"
            shell "push-$kind" "$push"
            shell "login-$kind" "$look"
        done
        # connection time apart
        awk -v a="$(median "push-$kind")" -v b="$(median "login-$kind")" -v n="pushed-$kind" 'BEGIN { print n, a - b, 0 }' >>figures
        rm -r src
    done
    goal "1 Gbit/s, incompressible: raw TCP / part-push" tcp-noise pushed-noise 0.98
    goal "  login included" tcp-noise push-noise
    if [ -n "$python" ]; then goal "1 Gbit/s, graph.dgl: raw TCP / part-push" tcp-graph pushed-graph 2; fi
}

# A host that is 20 ms away: what goes there and back waits so long in a program in front of its sshd.
cat >away.py <<'P'
import asyncio, time

async def carry(reader, writer):
    waiting = asyncio.Queue()

    async def deliver():
        while True:
            due, data = await waiting.get()
            await asyncio.sleep(max(0, due - time.monotonic()))
            if not data:
                return writer.close()
            writer.write(data)
            await writer.drain()

    task = asyncio.ensure_future(deliver())
    data = b"x"
    while data:
        data = await reader.read(1 << 20)
        waiting.put_nowait((time.monotonic() + 0.02, data))
    await task

async def connected(reader, writer):
    there = await asyncio.open_connection("127.0.0.1", 22)
    await asyncio.gather(carry(reader, there[1]), carry(there[0], writer), return_exceptions=True)

async def main():
    await (await asyncio.start_server(connected, "0.0.0.0", 2200, limit=1 << 21)).serve_forever()

asyncio.run(main())
P
far() {
    local i
    all=h2
    mkdir -p src
    head -c "$((mb * 2))M" /dev/urandom >src/f
    plan "$all"
    on1 "ssh -n h2 'setsid python3 $work/away.py >/dev/null 2>&1 </dev/null &'"
    sleep 1
    for ((i = 0; i < rounds; i++)); do
        shell cat-far "ssh -p 2200 -o HostKeyAlias=h2 -c $gcm h2 'cat >/srv/ws/f' <src/f"
        # the way of the logins alone is long here
        shell push-far "DGL_TOOLS_HOST_KEY=accept-new DGL_TOOLS_SSH_PORT=2200 part-push --wire ssh --progress never <plan.jsonl"
        again pull-far "rm -rf back; ipconf-check ip.txt | DGL_TOOLS_HOST_KEY=accept-new DGL_TOOLS_SSH_PORT=2200 part-pull --wire ssh --workspace /srv/ws --to back src"
    done
    goal "1 host 40 ms there and back: ssh cat / part-push" cat-far push-far
    goal "1 host 40 ms there and back: ssh cat / part-pull" cat-far pull-far
    rm -r src
}

# One file for 8 hosts behind an uplink of 1 Gbit/s, against the same file for one of them.
shared() {
    local i
    mkdir -p src
    head -c "$((mb * 2))M" /dev/urandom >src/f
    for ((i = 0; i < rounds; i++)); do
        all=h2
        plan "$all"
        shell push-alone "$push"
        all="h2 h3 h4 h5 h6 h7 h8 h9"
        plan "$all"
        shell push-shared "$push"
        shell push-shared-apart "$push_ssh"
    done
    goal "8 hosts, the same $((mb * 2)) MB: --wire ssh / part-push" push-shared-apart push-shared
    limit "8 hosts, the same $((mb * 2)) MB: part-push / part-push to one" \
        "$(awk -v a="$(median push-shared)" -v b="$(median push-alone)" 'BEGIN { print a / b }')" x 1.3
    limit "  of the sender's CPU" "$(median push-shared 3)" s
    rm -r src
}

# 64 KB that change in the middle of a large file, there and back.
changed() {
    local i
    all=h2
    mkdir -p src
    head -c "$((mb * 8))M" /dev/urandom >src/f
    plan "$all"
    shell push-first "$push"
    again pull-first "rm -rf back; ipconf-check ip.txt | part-pull --progress never --workspace /srv/ws --to back src"
    for ((i = 0; i < rounds; i++)); do
        head -c 64K /dev/urandom | dd of=src/f bs=64K seek=$((mb * 64 + i)) conv=notrunc 2>err
        plan "$all"
        again push-changed "$push | tee changed.jsonl"
        head -c 64K /dev/urandom >piece
        "$cluster" exec 2 dd if="$work/piece" of=/srv/ws/src/f bs=64K seek=$((mb * 64 + i)) conv=notrunc 2>err
        again pull-changed "ipconf-check ip.txt | part-pull --progress never --workspace /srv/ws --to back src | tee brought.jsonl"
    done
    goal "$((mb * 8)) MB, of which 64 KB have changed: part-push at first / again" push-first push-changed
    limit "  deliveries that failed" "$(jq -s 'map(select(.type == "pushed" and .ok == false)) | length' changed.jsonl)" "" 0
    limit "  sent" "$(jq -s 'map(select(.type == "pushed") | .sent_bytes) | max / 1e3' changed.jsonl)" KB
    goal "$((mb * 8)) MB, of which 64 KB have changed: part-pull at first / again" pull-first pull-changed
    limit "  received" "$(jq -s 'map(select(.type == "pulled") | .received_bytes) | max / 1e3' brought.jsonl)" KB
    rm -r back
    empty # the disk holds what one of both needs
    again rsync-first "rsync -a --inplace src/f h2:/srv/ws/src/"
    for ((i = 0; i < rounds; i++)); do
        head -c 64K /dev/urandom | dd of=src/f bs=64K seek=$((mb * 64 + i)) conv=notrunc 2>err
        again rsync-changed "rsync -a --inplace src/f h2:/srv/ws/src/"
    done
    goal "  rsync --inplace / part-push" rsync-changed push-changed
    rm -r src
}

# A link on which every packet takes 20 ms each way; raw TCP with the same buffers of the kernel.
delay() {
    local i h
    all=h2
    mkdir -p src
    head -c "$((mb * 2))M" /dev/urandom >src/f
    plan "$all"
    for h in 1 2; do
        # shellcheck disable=SC2016 # the host's shell expands it
        "$cluster" exec "$h" ssh "h$h" 'PATH=$PATH:/usr/sbin:/sbin; tc qdisc replace dev eth0 root netem delay 20ms rate 1gbit limit 20000' || {
            echo "delay: left out, this kernel has no netem"
            rm -r src
            return 0
        }
    done
    on1 "ssh -n h2 'setsid $raw_tcp sink 0.0.0.0 >/dev/null 2>&1 </dev/null &'"
    sleep 1
    for ((i = 0; i < rounds; i++)); do
        shell tcp-delay "$raw_tcp source 10.77.0.2 src/f"
        shell push-delay "$push"
        shell login-delay "$look"
    done
    # connection time apart
    awk -v a="$(median push-delay)" -v b="$(median login-delay)" 'BEGIN { print "pushed-delay", a - b, 0 }' >>figures
    goal "1 Gbit/s, 40 ms there and back: raw TCP / part-push" tcp-delay pushed-delay 0.9
    rm -r src
}

many() { # sshd's own limits on logins are in force
    local k hosts=$1
    mkdir -p src
    for k in 0 1 2 3 4 5 6 7 8 9; do head -c 4K /dev/urandom >"src/$k"; done
    all=$(seq -f h%g 2 "$hosts")
    plan "$all"
    again push-many "part-push --progress never <plan.jsonl | tee pushed.jsonl"
    limit "$((hosts - 1)) hosts, 10 small files each" "$(median push-many)" s
    limit "  of the sender's CPU" "$(median push-many 3)" s
    limit "  deliveries that failed" "$(jq -s --argjson all $(((hosts - 1) * 10)) '$all - (map(select(.type == "pushed" and .ok)) | length)' pushed.jsonl)" "" 0
    rm -r src
}

header
for part in ${PARTS:-bulk one here small tiny slow far shared changed delay many}; do
    case $part in
        slow) "$cluster" up 2 --rate 1gbit --quiet >/dev/null && slow ;;
        far) "$cluster" up 2 --quiet >/dev/null && far ;;
        shared) "$cluster" up 9 --rate 1gbit --quiet >/dev/null && shared ;;
        changed) DISK=$((mb * 24))m "$cluster" up 2 --quiet >/dev/null && changed ;; # what changes has its place twice for a while
        delay) "$cluster" up 2 --quiet >/dev/null && delay ;;
        many) SHM=16m "$cluster" up "${HOSTS:-250}" --quiet >/dev/null && many "${HOSTS:-250}" ;;
        *) "$cluster" up 5 --quiet >/dev/null && "$part" ;;
    esac
    "$cluster" down
done
