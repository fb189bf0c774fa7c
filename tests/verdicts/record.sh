#!/bin/bash
# Records the cases again with the real tools: record.sh [NAME...], without a name all of them.
#
# Each case runs alone in namespaces of its own (root is needed): /srv/job is a fresh workspace with the files of the
# case, /dev/shm is fresh, and all hosts 10.0.0.1, 10.0.0.2, ... are addresses of the loopback interface, reached with
# `--connect local`. Nothing outside is written to but NAME/run.jsonl.
#
#   TOOLS=DIR  where dgl-env, dgl-spawn and the others are; default: target/debug of this checkout
#   GNN=DIR    a virtual environment of /usr/bin/python3 that appears as /opt/gnn; cases that say `needs gnn` are left
#              out without it. It has torch 2.4.1, numpy 1.26, torchdata 0.11.0, psutil, lightning-fabric 2.4.0,
#              accelerate 0.34.2 and rich, and beside them, each by `pip install --no-deps --target`, the directories dgl21
#              (dgl 2.1.0, scipy), dgl11 (dgl 1.1.3, scipy), td071 (torchdata 0.7.1) and pd (pandas, pydantic 2.7)
#
# record.sh --beside [NAME...] writes NAME/torchrun.txt and NAME/mpirun.txt instead: what the launchers of torch (GNN's)
# and of Open MPI print when they run the same script, with GNN's Python, in the same number of processes on one machine.
#
# A job.sh is shell text in which these commands may be used:
#   needs WHAT...        torch: /usr/bin/python3 has torch 1.13 (Debian 12's python3-torch); gnn; cc; strace; cgroup
#   hosts N              the number of hosts; default 2
#   probe OPTION...      options of host-probe, such as --venv /opt/gnn
#   facts FILTER         a jq filter for host records, such as '.gpus = 2', where the machine has no GPU
#   as_user              the tools and the job run as an ordinary user
#   plan OPTION... -- COMMAND     another dgl-env in the pipeline; --role worker unless --program is given
#   launch OPTION...     runs the job
# shellcheck disable=SC2317 # the functions are called by job.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
TOOLS=${TOOLS:-$here/../../target/debug}

say() { printf '%s\n' "record.sh: $*" >&2; }

needs() {
    local what
    for what in "$@"; do
        case $what in
            torch) /usr/bin/python3 -c 'import importlib.util as u; assert u.find_spec("torch")' 2>/dev/null ;;
            gnn) [ -x /opt/gnn/bin/python3 ] ;;
            cgroup) [ -d /sys/fs/cgroup/memory ] || [ -e /sys/fs/cgroup/cgroup.controllers ] ;;
            *) command -v "$what" >/dev/null ;;
        esac || { say "$case_name is left out: no $what"; exit 69; }
    done
}
hosts() { seq -f 10.0.0.%g "$1" >ip_config.txt; }
probe() { probe_options=("$@"); }
facts() { host_filter=$1; }
as_user() { as=(setpriv --reuid 1000 --regid 1000 --clear-groups); chown -R 1000:1000 /srv/job /home/user; }
plan() {
    local role=(--role worker)
    [[ " $* " != *" --program "* && " $* " != *" --role "* ]] || role=()
    if [ ! -e plan.jsonl ]; then
        ipconf-check ip_config.txt | "${as[@]}" host-probe --connect local "${probe_options[@]}" 2>/dev/null |
            jq -c "if .type == \"host\" then $host_filter else . end" >plan.jsonl
    fi
    "${as[@]}" dgl-env "${role[@]}" --workspace /srv/job "$@" <plan.jsonl >next.jsonl
    mv next.jsonl plan.jsonl
}
launch() {
    "${as[@]}" timeout 170 dgl-spawn --connect local --job job --log-dir logs "$@" \
        <plan.jsonl >/dev/null 2>last_words.txt || say "$case_name: status $?"
}

# What another launcher prints of the same end. The commands of job.sh stand for it, as far as they say what to run.
beside() { # torchrun|mpirun
    launcher=$1
    count=0 setup=: variables=() command=()
    plan() {
        local hosts workers=1
        hosts=$(wc -l <ip_config.txt)
        while [ "$1" != -- ]; do
            case $1 in
                --num-workers) workers=$2 && shift ;;
                --setup) setup=$2 && shift ;;
                --env) variables+=("$2") && shift ;;
            esac
            shift
        done
        shift
        count=$((hosts * workers)) command=("$@")
        PATH=/opt/gnn/bin:$PATH # torchrun of one version does not work with torch of another
    }
    launch() {
        local start=(/opt/gnn/bin/torchrun --no_python --nproc_per_node "$count" --master_port 29600)
        [ "$launcher" = torchrun ] || start=(mpirun --allow-run-as-root --oversubscribe --mca oob_tcp_if_include lo -np "$count" ./as_torchrun.sh)
        # shellcheck disable=SC2016 # the shell of each process reads them
        printf '#!/bin/sh\nexport RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_RANK %s\nexec "$@"\n' \
            "WORLD_SIZE=$count MASTER_ADDR=10.0.0.1 MASTER_PORT=29600" >as_torchrun.sh
        chmod +x as_torchrun.sh
        [ ${#as[@]} = 0 ] || chown 1000:1000 as_torchrun.sh
        local status=0
        PYTHONFAULTHANDLER=1 PYTHONUNBUFFERED=1 timeout --kill-after 5 60 "${as[@]}" env "${variables[@]}" \
            sh -c "$setup; exec \"\$@\"" sh "${start[@]}" "${command[@]}" >shown.txt 2>&1 </dev/null || status=$?
        {
            cut -c1-400 shown.txt | tail -n 120
            if [[ $status = 124 || $status = 137 ]]; then echo "(nothing more within 60 s)"; else echo "(status $status)"; fi
        } | sed -e "s|$HOME|/home/user|g" >"$here/$case_name/$launcher.txt"
        say "$case_name: $launcher: status $status"
    }
}

# The records without what says only where they were made. Because all hosts are one machine, each agent also sees the
# processes of the others when it reads stacks, and does not know which they are.
trimmed() {
    jq -c 'if .type == "host" then del(.path, .home, .numa_cores, .free_ports, .free_bytes)
        elif (.type == "stack" or .type == "profile") and (has("id") or has("parent") | not) then empty else . end' |
        sed -e "s|$TOOLS:||g"
}

inside() {
    case_name=$1
    ip link set lo up
    for number in 1 2 3 4; do ip addr add 10.0.0.$number/32 dev lo; done
    hostname gpu1
    printf '127.0.0.1 localhost\n10.0.0.1 gpu1\n10.0.0.2 gpu2\n' >/tmp/hosts.$$
    mount --bind /tmp/hosts.$$ /etc/hosts
    rm /tmp/hosts.$$
    [ -z "${GNN:-}" ] || exec 8<"$GNN"
    for folder in /srv /home /opt /dev/shm; do mount -t tmpfs tmpfs $folder; done
    mkdir -p /srv/job /home/user
    chmod 1777 /dev/shm
    [ -z "${GNN:-}" ] || { mkdir /opt/gnn && mount --bind /proc/self/fd/8 /opt/gnn && exec 8<&-; }
    export HOME=/home/user USER=user LOGNAME=user SHELL=/bin/bash LC_ALL=C.UTF-8
    export PATH=$TOOLS:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
    unset OMP_NUM_THREADS OPENBLAS_NUM_THREADS PYTHONPATH
    as=() probe_options=() host_filter=.
    cp "$here/play.py" /srv/job/train.py
    cp "$here/star.py" /srv/job/
    cp -r "$here/$case_name/." /srv/job/
    rm -f /srv/job/{run.jsonl,truth.json,torchrun.txt,mpirun.txt}
    cd /srv/job
    hosts 2
    [ -z "${BESIDE:-}" ] || beside "$BESIDE"
    # shellcheck disable=SC1091
    . ./job.sh
    [ -z "${BESIDE:-}" ] || return 0
    [ -s logs/run.jsonl ] || { say "$case_name: no records"; tail -5 last_words.txt >&2; exit 1; }
    trimmed <logs/run.jsonl >"$here/$case_name/run.jsonl"
    say "$case_name: $(wc -c <"$here/$case_name/run.jsonl") bytes"
}

if [ "${1:-}" = --inside ]; then
    inside "$2"
    exit
fi
TOOLS=$(cd "$TOOLS" && pwd)
export TOOLS
status=0 launchers=("")
if [ "${1:-}" = --beside ]; then shift && launchers=(torchrun mpirun); fi
[ $# -gt 0 ] || { cd "$here"; set -- */; }
for name in "$@"; do
    for launcher in "${launchers[@]}"; do
        BESIDE=$launcher unshare --net --uts --mount --propagation private "$here/record.sh" --inside "${name%/}" ||
            { [ $? = 69 ] || status=1; }
    done
done
exit $status
