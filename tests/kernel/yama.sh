# Yama's ptrace_scope: an ordinary user asks where the processes of his job stand, and root where his own do.
# shellcheck shell=bash disable=SC2154,SC2016

try_yama() {
    echo 10.78.0.2 >vm.txt
    ipconf-check vm.txt >hosts.jsonl
    cat >wait.py <<'P'
import os, sys, threading, time
def stops_here():
    time.sleep(3600)
def sampler_waits():
    stops_here()
def trainer_waits():
    stops_here()
threading.Thread(target=stops_here, name="loader", daemon=True).start()
if os.fork() == 0:
    sampler_waits()
trainer_waits()
P
    guest 'mkdir -p /srv/ws && cat >/srv/ws/wait.py' <wait.py
    guest_user 'mkdir -p /srv/user/ws && cat >/srv/user/ws/wait.py' <wait.py
    cat >ranks.py <<'P'
import os, socket, time
def meets(own):
    """Two ranks send each other a byte; rank 1 does not answer the last one of rank 0."""
    for _ in range(5):
        own.sendall(b"x")
        own.recv(1)
    if os.environ["RANK"] == "1":
        own.recv(1)
        time.sleep(3600)
    time.sleep(1) # more than the ticks in which the kernel counts
    own.sendall(b"x")
    own.recv(1)
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    meets(socket.create_server(address).accept()[0])
while True:
    try:
        meets(socket.create_connection(address))
    except ConnectionRefusedError:
        time.sleep(0.1)
P
    guest_user 'cat >/srv/user/ws/ranks.py' <ranks.py
    for rank in 0 1; do
        guest_user "cd /srv/user/ws; RANK=$rank WORLD_SIZE=2 MASTER_ADDR=10.78.0.2 MASTER_PORT=29600 nohup python3 ranks.py >/dev/null 2>&1 </dev/null &"
    done
    start user /srv/user/ws 29501
    start root /srv/ws 29502
    scope 0
    is "0: a user reads his own" 'reads user'
    scope 1
    is "1: so he does, by the job's supervisor" 'reads user'
    is "1: root too" 'reads root'
    is "1: a job that stalls tells where it stands" 'stalls && grep -q trainer_waits stalled.jsonl && grep -q "sampler_waits" stalled.jsonl' stalled.err
    is "1: of a job that he started without these tools he cannot read stacks, and the silent rank is named" 'soon 60 names_silent_rank' any.txt any.err
    is "1: he is told once what would give them" '[ "$(grep -c "sysctl kernel.yama.ptrace_scope=0" any.err)" = 1 ] && grep -q DGL_TOOLS_SSH_USERNAME=root any.err' any.err
    is "1: root reads these stacks, and it is still rank 1" 'any root && silent_rank_is_1 && grep -q "meets (ranks.py" any.txt && ! grep -q "may not be read" any.err' any.txt any.err
    guest pkill -u user -f ranks.py
    scope 2
    is "2: a user cannot, and is told what would help" '! reads user && grep -q "ptrace_scope is 2" stacks.err && grep -q "sysctl kernel.yama.ptrace_scope=1" stacks.err &&
        ! grep -q "log in as the user" stacks.err && grep -q "\"signal\|--signal ABRT" stacks.err' stacks.err
    is "2: root reads his own" 'reads root'
    is "2: a job that stalls says why it does not tell" 'stalls && grep -q "ptrace_scope is 2" stalled.err && jq -se "map(select(.type == \"stalled\")) | length == 1" stalled.jsonl' stalled.err stalled.jsonl
    scope 3
    is "3: nobody can, and is told so" '! reads root && grep -q "ptrace_scope is 3" stacks.err && grep -q "until the host is restarted" stacks.err && ! grep -q "as root" stacks.err' stacks.err
    is "dgl-reap --signal ABRT has Python itself tell" 'DGL_TOOLS_SSH_USERNAME=user dgl-reap --job user --signal ABRT <hosts.jsonl >/dev/null 2>err;
        soon 20 "grep -q \"in trainer_waits\" user.jsonl"' err user.jsonl
    dgl-reap --all <hosts.jsonl >/dev/null 2>&1 || true
    DGL_TOOLS_SSH_USERNAME=user dgl-reap --all <hosts.jsonl >/dev/null 2>&1 || true
    is "nothing is left" 'soon 30 nothing_left'
}

scope() { guest "sysctl -q kernel.yama.ptrace_scope=$1"; }

start() { # USER FOLDER PORT: a job of his name
    dgl-env --role worker --master-port "$3" --workspace "$2" -- python3 wait.py <hosts.jsonl >job.jsonl
    DGL_TOOLS_SSH_USERNAME="$1" dgl-spawn --job "$1" <job.jsonl >"$1.jsonl" 2>"$1.err" &
    soon 30 "guest pgrep -u $1 -fc wait.py | grep -qx 2"
    sleep 2 # a Python has begun
}

# All three threads of both Pythons.
reads() { # USER
    DGL_TOOLS_SSH_USERNAME="$1" dgl-stacks --job "$1" --format human <hosts.jsonl >table.txt 2>stacks.err || return
    grep -q "trainer_waits (wait.py" table.txt && grep -q "sampler_waits (wait.py" table.txt && grep -q "thread loader" table.txt
}

# The ranks that no tool of these has started, as records and as text.
any() { # USER
    DGL_TOOLS_SSH_USERNAME="$1" dgl-stacks --any --match ranks.py --format jsonl <hosts.jsonl >any.jsonl 2>any.err || [ "$1" = user ] || return
    DGL_TOOLS_SSH_USERNAME="$1" dgl-stacks --any --match ranks.py --format human <hosts.jsonl >any.txt 2>/dev/null || [ "$1" = user ]
}

silent_rank_is_1() { jq -se 'map(select(.type == "stalled"))[0].culprit.rank == 1' any.jsonl; }

names_silent_rank() {
    any user && silent_rank_is_1 && grep -q "worker 1.*sleeps in the kernel" any.txt
}

# A job of the user that stalls while it is watched.
stalls() {
    dgl-env --role worker --workspace /srv/user/ws -- python3 wait.py <hosts.jsonl >stall-job.jsonl
    DGL_TOOLS_SSH_USERNAME=user dgl-spawn --job stalls --stall-timeout 5s:end --grace 2s <stall-job.jsonl >stalled.jsonl 2>stalled.err
    [ $? = 124 ]
}
