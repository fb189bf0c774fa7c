#!/bin/bash
# What link-probe costs a job that runs meanwhile: 2 real hosts on links shaped to RATE. A copy of 150 MB from one to the other, and a training
# of DGL over both, each without link-probe and with one run of it, as it is without options, that begins while they are at work. Prints what
# each took longer in the median, and a JSON object a line into the file BENCH_JSON where that is set. Fails at nothing.
# Usage: probed.sh [ROUNDS=5] [RATE=200mbit]
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"
rounds=${1:-5} rate=${2:-200mbit}
export SHM=256m
python=$("$root/tests/dgl/python.sh")
seq -f 10.77.0.%g 2 | ipconf-check >hosts.jsonl
seq -f 10.77.0.%g 2 >ip.txt
DGLBACKEND=pytorch "$python" "$root/tests/dgl/partition.py" --out out --num-parts 2 --num-nodes 20000 2>/dev/null >&2
head -c 150000000 /dev/urandom >load
"$cluster" up 2 --rate "$rate" --quiet >/dev/null
on() { "$cluster" exec "$1" sh -c "cd '$work'; PATH='$PATH'; export DGL_TOOLS_CONNECT_TIMEOUT=60s; $2"; }
probe() { sleep "$1"; on 1 'link-probe <hosts.jsonl >/dev/null 2>>said'; }
seconds() { local begun; begun=$(date +%s.%N); "$@" >&2; awk -v b="$begun" -v e="$(date +%s.%N)" 'BEGIN { print e - b }'; }

copy() { # from host 1 to host 2 alone
    on 2 'rm -rf /srv/copy'
    seconds on 1 "part-map --workspace /srv/copy --extra load <hosts.jsonl | part-push --host 1 --wire direct 2>>said >/dev/null"
}
on 1 "host-probe --workspace /srv/job --python '$python' <hosts.jsonl | part-map --part-config out/g.json --workspace /srv/job \
    --script-folder '$root/tests/dgl' | part-push | dgl-env --num-trainers 1 --num-omp-threads 1 -- '$python' dgl/train.py \
    --ip-config ip_config.txt --part-config data/g.json --num-epochs 6 --batch-size 500 >job.jsonl 2>>said"
# what the epochs took, without the start of the job
train() {
    on 1 "dgl-spawn --format jsonl <job.jsonl 2>>said" |
        jq -r 'select(.type == "output" and (.line | startswith("epoch ")) and .id == 2) | .line' | awk '{ s += $NF } END { print s }'
}
# begins with the third epoch
while_training() {
    on 1 "dgl-spawn --format jsonl <job.jsonl 2>>said" >run.jsonl &
    until grep -qs '"epoch 1 ' run.jsonl; do sleep 0.1; done
    probe 0
    wait $!
    jq -r 'select(.type == "output" and (.line | startswith("epoch ")) and .id == 2) | .line' run.jsonl | awk '{ s += $NF } END { print s }'
}
for ((i = 0; i < rounds; i++)); do
    echo "copy $(copy)" >>figures
    probe 1 & # the copy takes six seconds
    echo "copy-probed $(copy)" >>figures
    wait
    echo "train $(train)" >>figures
    rm -f run.jsonl
    echo "train-probed $(while_training)" >>figures
done
header
for what in copy train; do
    goal "$what, without link-probe and with one run of it ($rate)" $what $what-probed
    limit "what $what took longer" "$(awk -v a="$(median $what-probed)" -v b="$(median $what)" 'BEGIN { print a - b }')" s
done
