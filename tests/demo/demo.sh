#!/bin/bash
# What `make demo` does: builds the tools, starts 4 hosts on this machine, copies each its share of the data, trains on all of them, lets a
# second job fail, shows why it failed and that nothing is left, and ends the hosts. The job is one of DGL where no torch of pip is needed
# for that, which is gigabytes, or with DGL=1; otherwise, or with DGL=0, it is a program in Python alone.
# Usage: demo.sh OPTION... : what cargo is to build
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
host_lab=$root/tools/host-lab/host-lab
PATH=$PATH:/usr/sbin:/sbin
export DGLBACKEND=pytorch # without it DGL writes ~/.dgl/config.json

say() { printf '\n== %s\n' "$*"; }

if [ -z "${PYTHON:-}" ] && python3 -c 'import dgl, torch' 2>/dev/null; then export PYTHON=python3; fi
if [ "${DGL:-}" = 1 ] || { [ "${DGL:-}" != 0 ] && tests/dgl/python.sh --at-hand 2>/dev/null; }; then
    say "This shows jobs of DGL on 4 simulated hosts, for a minute. What is missing for DGL goes into packages of the system and ~/.cache/dgl-tools"
    needs=dgl
else
    say "This shows jobs in Python alone on 4 simulated hosts, for some seconds. make demo DGL=1 gets DGL and torch from pip, which are 3.5 GB"
    needs=hosts
fi
tests/need.sh "$needs"
[ "$needs" = hosts ] || python=$(tests/dgl/python.sh)

say "Building the tools, which takes some 4 minutes of processor time if nothing is built yet"
cargo build --locked "$@"

work=$(mktemp -d /var/tmp/dgl-tools-demo-XXXXXX) # not in /tmp, because every host has its own
export LAB=$work/lab
end() {
    status=$?
    [ ! -d "$LAB" ] || "$host_lab" down || true
    rm -rf "$work"
    exit "$status"
}
target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
PATH=$target/debug:$PATH
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# Shows a pipeline and runs it on host 1.
run() {
    printf '$ %s\n' "$1"
    "$host_lab" exec 1 bash -o pipefail -c "$1"
}

say "Starting 4 hosts, 10.77.0.1 to 10.77.0.4, each with its own network, processes and sshd"
"$host_lab" up 4 --quiet >"$work/ip_config.txt"
cd "$work"
mkdir code

if [ "$needs" = dgl ]; then
    say "Partitioning a graph into 4 parts"
    cp "$root/tests/dgl/train.py" code/
    "$python" "$root/tests/dgl/partition.py" --out out --num-parts 4 2>partition.log || { cat partition.log; exit 1; }
    probe="host-probe --python $python" data="--part-config out/g.json" processes="--num-trainers 2"
    command="$python code/train.py --ip-config ip_config.txt --part-config data/g.json" first=trainer:0
else
    say "Writing data in 4 shards"
    cp "$root/tests/demo/train.py" code/
    mkdir shards
    for host in 0 1 2 3; do
        seq 500 | LC_ALL=C awk -v host=$host 'NR % 4 == host { print $1 / 250 "," $1 / 125 + 1 }' >shards/$host.csv
    done
    probe="host-probe" data="--per-host 'shards/{host}.csv'" processes="--role worker --num-workers 2"
    command="python3 code/train.py" first=worker:0
fi

say "Copying the program to all hosts, and each its share of the data"
run "ipconf-check ip_config.txt | $probe |
    part-map --workspace /srv/job --script-folder code $data |
    part-push > pushed.jsonl"

say "Training: two processes on each host; the output of the first is shown"
run "dgl-env $processes -- $command < pushed.jsonl |
    dgl-spawn --format human --show $first --log-dir logs"

say "The same job, in which one process raises an exception: dgl-spawn stops all others and names it"
status=0
run "dgl-env $processes -- $command --fail-rank 5 --fail-epoch 1 < pushed.jsonl |
    dgl-spawn --format human --show $first --log-dir logs" || status=$?
[ "$status" = 1 ] || { echo "the job was to fail with status 1, and its status is $status"; exit 1; }

say "Why it failed, from its records"
run "dgl-why --brief logs" || [ $? = 1 ]

say "Looking for processes and files in /dev/shm that are left on the hosts"
if "$host_lab" left; then
    echo "nothing is left"
else
    echo "the jobs left something behind"
    exit 1
fi

say "Ending the hosts"
"$host_lab" down
cat <<'END'
the hosts and their files are gone

What to do next:
  tools/host-lab/host-lab up 4      # such hosts to try things on; it says how
  cp -r examples/torch myjob        # a repository that trains with make, as a beginning of yours: see its Makefile
  make install PREFIX=~/.local      # the tools, their manual (man dgl-tools) and dgl.mk, for your own cluster
END
