# Processes that the kernel kills because there is no more memory, in the control group of their logins or at all; for cgroup1.sh and
# cgroup2.sh.
# shellcheck shell=bash disable=SC2154,SC2016

LIMIT=268435456

prepare() {
    echo 10.78.0.2 >vm.txt
    guest 'mkdir -p /srv/ws; cat >/srv/ws/eat.py' <<'P'
held = []
while True:
    held.append(b"x" * (16 << 20))
P
}

# All logins from now on are in a group.
in_version() { # VERSION ROOT FILE
    guest "mkdir -p $2/job/login && echo $LIMIT >$2/job/$3 && echo \$(cat /run/sshd.pid) >$2/job/login/cgroup.procs"
    is "version $1: host-probe tells the limit" 'probe && jq -se "map(select(.type == \"host\"))[0].mem_limit_bytes == $LIMIT" hosts.jsonl' err hosts.jsonl
    kills_are_told "version $1"
    guest "for pid in \$(cat /run/sshd.pid) \$(cat $2/job/login/cgroup.procs); do echo \$pid >$2/cgroup.procs; done 2>/dev/null || true"
}

kills_are_told() { # WHERE
    is "$1: a kill for memory is told as that" 'run "exec python3 eat.py"; is_killed "signal == \"KILL\" and .oom" && grep -q "killed it because memory ran out" err' err run.jsonl
    is "$1: so is that of what a shell ran" 'run "python3 eat.py; exit \$?"; is_killed "code == 137 and .oom" && grep -q "killed what it ran because memory ran out" err' err run.jsonl
    is "$1: another kill is not" 'run "kill -9 \$\$"; is_killed "signal == \"KILL\" and (.oom | not)"' err run.jsonl
    is "$1: nor another one of what a shell ran" 'run "sh -c \"kill -9 \\\$\\\$\"; exit \$?"; is_killed "code == 137 and (.oom | not)"' err run.jsonl
}

probe() { ipconf-check vm.txt | host-probe --python none >hosts.jsonl 2>err; }

run() { # SCRIPT: after a second, in which it is seen where it is counted
    dgl-env --role worker --workspace /srv/ws -- sh -c "sleep 1.5; $1" <hosts.jsonl 2>err | dgl-spawn >run.jsonl 2>>err
}

is_killed() { jq -se "map(select(.type == \"exited\"))[0] | .$1" run.jsonl; }
