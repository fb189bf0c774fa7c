# A host whose clock stands years away, or jumps by years; the launcher and the job's other host have the right one.
# shellcheck shell=bash disable=SC2154,SC2016,SC2034

clock() { guest "date -s '$1' >/dev/null"; }

# Hosts and what goes to them, as it lies here now.
plan() {
    ipconf-check ip.txt | part-map --workspace /srv/ws --extra src >plan.jsonl
    ipconf-check vm.txt | part-map --workspace /srv/ws --extra src >vm.jsonl
}

sums() { (cd "$1" && find src -type f -exec sha256sum {} + | sort); }
same_there() {
    local there
    there=$(guest 'cd /srv/ws && find src -type f -exec sha256sum {} + | sort')
    [ "$there" = "$(sums .)" ] && [ "$(sums /srv/ws)" = "$(sums .)" ] && [ "$(guest stat -c %y.%s /srv/ws/src/large)" = "$(stat -c %y.%s src/large)" ]
}

# A job of both hosts, and what its records must say of time: that of this machine, and no years. How long a process ran is measured
# here, between the arrivals of two events.
job() { ipconf-check ip.txt | dgl-env --role worker --workspace /srv/ws -- "$@" >job.jsonl 2>plan.err; }
times_are_right() { # RUN LEAST-MS
    jq -se --argjson now "$(date +%s)" --argjson least "$2" '
        (map(.time_ms // empty) | length > 0 and all((. / 1000 - $now) | fabs < 600)) and
        (map(select(.type == "exited")) | length == 2 and all(.elapsed_ms > $least - 200 and .elapsed_ms < 60000)) and
        (map(select(.type == "summary"))[-1] | .ok and .elapsed_ms < 120000)' "$1"
}
try_clock() {
    local year
    printf '10.78.0.2\n10.78.0.1\n' >ip.txt
    echo 10.78.0.2 >vm.txt
    ipconf-check ip.txt >hosts.jsonl
    ipconf-check vm.txt >vm-host.jsonl
    mkdir -p src/deep
    head -c 24M /dev/urandom >src/large
    echo deep >src/deep/file
    for year in 1995 2040 2100; do at_year "$year"; done
    clock_jumps
}

at_year() { # YEAR
    guest 'rm -rf /srv/ws'
    rm -rf /srv/ws back
    echo one >src/note
    clock "$1-06-15 12:00:00"
    plan
    is "$1: host-probe" 'host-probe --python none <hosts.jsonl >probed.jsonl 2>err && jq -se "map(select(.type == \"host\" and .cpus > 0)) | length == 2" probed.jsonl' err
    is "$1: files go directly, and from host to host" \
        'part-push --wire direct --progress always <plan.jsonl >pushed.jsonl 2>err && grep -q "through a chain\|handed on\|chain" err && same_there' err
    is "$1: what is there is not sent again" 'part-push <plan.jsonl 2>err | jq -se "map(select(.type == \"pushed\")) | length > 0 and all(.skipped)"' err
    echo two >src/note
    plan
    is "$1: what has changed is" 'part-push <plan.jsonl 2>err | jq -se "map(select(.type == \"pushed\" and (.skipped | not))) | length == 2" && same_there' err
    is "$1: files come back" 'part-pull --wire direct --workspace /srv/ws --to back src <vm-host.jsonl >pulled.jsonl 2>err && diff -r src back/src' err
    is "$1: what has come does not come again" 'part-pull --workspace /srv/ws --to back src <vm-host.jsonl 2>err | jq -se "map(select(.type == \"pulled\")) | length > 0 and all(.skipped)"' err
    is "$1: a push that broke off goes on, a year later" 'breaks_off && clock "$((year + 1))-06-15 12:00:00" && goes_on' err pushed.jsonl
    job sh -c 'date +%Y; sleep 2'
    is "$1: a job" 'dgl-spawn <job.jsonl >run.jsonl 2>err && grep -q "\"line\":\"$((year + 1))\"" run.jsonl && times_are_right run.jsonl 2000' err run.jsonl
    is "$1: nothing is left" 'soon 20 nothing_left'
}

received() { guest cat /sys/class/net/eth0/statistics/rx_bytes; }

# A third of the file is there when the sender is killed.
breaks_off() {
    guest 'rm -rf /srv/ws'
    local before sender
    before=$(received)
    part-push --wire direct --limit 4MB/s <vm.jsonl >/dev/null 2>err &
    sender=$!
    soon 60 '[ "$(received)" -gt $((before + 8000000)) ]' && kill -KILL "$sender" || return
    soon 60 'guest ls /srv/ws/.part-push.kept | grep -q .'
}
goes_on() {
    part-push --wire direct <vm.jsonl >pushed.jsonl 2>err || return
    jq -se 'map(select(.type == "pushed" and .bytes > 1000000))[0] | .ok and .sent_bytes < .bytes - 1000000' pushed.jsonl
}

clock_jumps() {
    clock "$(date '+%F %T')"
    plan
    is "while a job runs" 'job sleep 9; { sleep 4; clock "2070-01-01"; sleep 2; clock "1990-01-01"; } & dgl-spawn <job.jsonl >run.jsonl 2>err && times_are_right run.jsonl 9000' err run.jsonl
    clock "$(date '+%F %T')"
    is "while a push is under way" 'guest "rm -rf /srv/ws"; rm -rf /srv/ws; { sleep 3; clock "2070-01-01"; sleep 2; clock "1990-01-01"; } &
        part-push --wire direct --limit 4MB/s <plan.jsonl >pushed.jsonl 2>err && same_there' err
    job sleep 600
    dgl-spawn --job reaped <job.jsonl >run.jsonl 2>run.err &
    is "dgl-reap tells a job by its age, and ends it" 'soon 30 "[ \$(grep -c started run.jsonl) = 2 ]" && clock "2090-01-01" &&
        dgl-reap --list <hosts.jsonl >list.jsonl 2>err && jq -se "map(select(.type == \"found\")) | length >= 2 and all(.age_s < 60)" list.jsonl &&
        dgl-reap --job reaped <hosts.jsonl >reaped.jsonl 2>err && soon 20 nothing_left' err list.jsonl
    is "which its dgl-spawn tells" 'soon 20 "grep -q \"ended by a signal of dgl-reap\" run.err"' run.err
    clock "$(date '+%F %T')"
}
