# 40 ms of round trip, at a rate that the emulated processors carry with ease: part-push and part-pull against raw TCP over the same link,
# all in each round. Times of files are those that records tell, from the first byte to the host's word that it is there.
# shellcheck shell=bash disable=SC2154,SC2016

# Both directions go through netem on the machine: what comes in by way of an ifb. A packet is one that a wire would carry.
link() { # WHAT-NETEM-DOES-TO-WHAT-COMES-IN
    guest "tc qdisc replace dev ifb0 root netem delay 20ms rate $RATE limit 1000 $1
        tc qdisc replace dev eth0 root netem delay 20ms rate $RATE limit 1000"
}

make_link() {
    # as nearly everywhere; a namespace may choose only what this machine allows, and reno always
    sysctl -q net.ipv4.tcp_congestion_control=cubic 2>/dev/null || sysctl -q net.ipv4.tcp_congestion_control=reno
    figure "TCP sends by $(sysctl -n net.ipv4.tcp_congestion_control)"
    guest 'ethtool -K eth0 gro off gso off tso off >/dev/null
        modprobe ifb numifbs=1 && ip link set ifb0 up
        tc qdisc add dev eth0 handle ffff: ingress
        tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0'
    guest 'cat >/tmp/raw_tcp.py; setsid python3 /tmp/raw_tcp.py sink 10.78.0.2 >/dev/null 2>&1 </dev/null &' <"$root/tests/bench/raw_tcp.py"
}

raw() { # NAME FILE
    python3 "$root/tests/bench/raw_tcp.py" source 10.78.0.2 "$2" | awk -v bytes="$(stat -c %s "$2")" '{ print bytes / $2 / 1e6 }' >>"rate-$1"
}
push() { # NAME FILE FLAG...
    local begun
    guest 'rm -rf /srv/ws'
    ipconf-check vm.txt | part-map --workspace /srv/ws --extra "$2" | jq -c 'select(.kind != "ip_config") | if .type == "file" then .id -= 1 | .of -= 1 else . end' >plan.jsonl
    begun=$(date +%s.%N)
    part-push "${@:3}" <plan.jsonl >pushed.jsonl 2>err
    awk -v b="$begun" -v e="$(date +%s.%N)" 'BEGIN { print e - b }' >>"whole-$1"
    jq -r 'select(.type == "pushed") | .bytes / .elapsed_ms / 1000' pushed.jsonl >>"rate-$1"
}
# What was pushed last comes back. Records do not tell how long that took, so it is what a file takes longer than none.
pull() { # NAME FILE
    local begun between
    rm -rf back
    guest 'touch /srv/ws/nothing'
    begun=$(date +%s.%N)
    ipconf-check vm.txt | part-pull --workspace /srv/ws --to back nothing >pulled.jsonl 2>err
    between=$(date +%s.%N)
    ipconf-check vm.txt | part-pull --workspace /srv/ws --to back "${2##*/}" >pulled.jsonl 2>err
    awk -v a="$begun" -v b="$between" -v c="$(date +%s.%N)" -v bytes="$(stat -c %s "$2")" 'BEGIN { print bytes / ((c - b) - (b - a)) / 1e6 }' >>"rate-$1"
}

median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
ratio() { awk -v a="$(median "rate-$1")" -v b="$(median "rate-$2")" 'BEGIN { printf "%.2f", a / b }'; }
of_raw() { # NAME RAW: in one run
    figure "$1: $(median "rate-$1") MB/s, $(ratio "$1" "$2") of raw TCP ($(median "rate-$2") MB/s)"
}

try_far() {

    echo 10.78.0.2 >vm.txt
    mkdir -p far
    head -c 24M /dev/urandom >far/large
    head -c 5M /dev/urandom >far/small # what is smaller goes over the login
    make_link
    soon 30 'guest ss -ltn | grep -q :7000'
    link ''
    is "the link has 40 ms" 'for _ in 1 2 3 4 5; do python3 "$root/tests/bench/raw_tcp.py" source 10.78.0.2 vm.txt; done | sort -g >round-trips && awk "NR == 1 { exit !(\$1 > 0.039) }" round-trips' round-trips
    push first far/small # the first brings the agent there
    for _ in 1 2 3; do
        raw raw far/large
        push direct far/large --wire direct
        pull pull far/large
        push ssh far/large --wire ssh
    done
    of_raw direct raw
    of_raw ssh raw
    figure "pull, what a file takes longer than none: $(median rate-pull) MB/s"
    figure "whole part-push of 24 MB at $RATE, login included: $(median whole-direct) s direct, $(median whole-ssh) s over ssh; $(awk -v r="$(median rate-raw)" 'BEGIN { print 25.17 / r }') s raw"
    is "directly 0.9 of raw TCP" 'awk "BEGIN { exit !($(ratio direct raw) >= 0.9) }"'
    is "over ssh 0.9 of raw TCP" 'awk "BEGIN { exit !($(ratio ssh raw) >= 0.9) }"'
    link 'loss 1%'
    for _ in 1 2; do
        raw raw-loss far/small
        push direct-loss far/small --wire direct
    done
    of_raw direct-loss raw-loss
    guest 'tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress'
}
