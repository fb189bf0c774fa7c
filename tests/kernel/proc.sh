# What hides processes: /proc with hidepid=2, in which an ordinary user sees nobody else's.
# shellcheck shell=bash disable=SC2154,SC2016

try_proc() {
    echo 10.78.0.2 >vm.txt
    ipconf-check vm.txt >hosts.jsonl
    guest_user 'mkdir -p /srv/user/ws'
    guest 'mount -o remount,hidepid=2 /proc'
    is "a user sees nobody else" '! guest_user "test -e /proc/1"'
    dgl-env --role worker --workspace /srv/user/ws -- sh -c 'sleep 600 & exec sleep 601' <hosts.jsonl >job.jsonl
    is "a job runs" 'dgl-env --role worker --workspace /srv/user/ws -- sh -c "echo well" <hosts.jsonl | DGL_TOOLS_SSH_USERNAME=user dgl-spawn >run.jsonl 2>err && grep -q "\"line\":\"well\"" run.jsonl' err
    DGL_TOOLS_SSH_USERNAME=user dgl-spawn --job hidden <job.jsonl >hidden.jsonl 2>hidden.err &
    is "a job is found" 'soon 30 "grep -q started hidden.jsonl" && DGL_TOOLS_SSH_USERNAME=user dgl-reap --list <hosts.jsonl >list.jsonl 2>err &&
        jq -se "map(select(.type == \"found\" and .job == \"hidden\" and (.command | contains(\"sleep\")))) | length == 2" list.jsonl' err list.jsonl
    is "its name is taken" '! DGL_TOOLS_SSH_USERNAME=user dgl-spawn --job hidden <job.jsonl >run.jsonl 2>err && grep -q "hidden" err' err
    is "a port is told to be root's" 'guest "setsid python3 -c \"import socket,time; s=socket.create_server((\\\"10.78.0.2\\\",30050)); time.sleep(60)\" >/dev/null 2>&1 </dev/null &"; soon 20 "guest grep -q :7562 /proc/net/tcp" || exit;
        ! dgl-env --workspace /srv/user/ws --part-config g.json --num-trainers 1 -- true <hosts.jsonl 2>/dev/null | DGL_TOOLS_SSH_USERNAME=user dgl-spawn --job other >run.jsonl 2>err;
        grep "port 30050" err | grep -q root' err
    is "dgl-reap ends it" 'DGL_TOOLS_SSH_USERNAME=user dgl-reap --job hidden <hosts.jsonl >reaped.jsonl 2>err && soon 20 nothing_left' err
    guest 'mount -o remount,hidepid=0 /proc'
}
