#!/bin/bash
# A whole job on this machine, with the tools that `make demo` has built: starts 4 hosts, partitions a graph with DGL, copies it over
# ssh, trains on all hosts, shows the result and that nothing is left, and ends the hosts.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
host_lab=$root/tools/host-lab/host-lab
PATH=$PATH:/usr/sbin:/sbin

work=$(mktemp -d /var/tmp/dgl-tools-demo-XXXXXX) # not in /tmp, because every host has its own
export LAB=$work/lab
end() {
    status=$?
    "$host_lab" down || true
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

# Prints how far the job is, from the records of dgl-spawn, and the lines of trainer 0. It ignores Ctrl-C, which is for dgl-spawn, whose
# last records are still read.
progress() (
    trap '' INT
    # shellcheck disable=SC2016 # jq's variables
    jq --unbuffered -rn 'foreach inputs as $r ({started: 0, listening: 0};
        if $r.type == "process" then .of = $r.of | .servers += (if $r.role == "server" then 1 else 0 end)
            | if $r.role == "trainer" and $r.rank == 0 then .shown = $r.id else . end
        elif $r.type == "started" then .started += 1
        elif $r.type == "listening" then .listening += 1
        else . end;
        if $r.type == "started" and .started == .of then
            "  \(.of) processes run; each now loads torch, which takes a while"
        elif $r.type == "listening" then
            "  graph servers that have loaded their partition and listen: \(.listening) of \(.servers)" +
            (if .listening == .servers then "; now the samplers load torch; then trainer 0 writes:" else "" end)
        elif $r.type == "output" and $r.id == .shown and ($r.line | test("loss")) then "  " + $r.line
        else empty end)'
)

say() { printf '\n== %s\n' "$*"; }

say "Looking for a Python with DGL and torch, or installing one, which takes minutes"
python=$(tests/dgl/python.sh)
echo "$python"

say "Starting 4 hosts, 10.77.0.1 to 10.77.0.4, each with its own network, processes and sshd"
"$host_lab" up 4 --quiet >"$work/ip_config.txt"

say "Partitioning a graph into 4 parts"
cd "$work"
mkdir code
cp "$root/tests/dgl/train.py" code/
"$python" "$root/tests/dgl/partition.py" --out out --num-parts 4 2>partition.log || { cat partition.log; exit 1; }

say "Copying the parts over ssh: ipconf-check | part-map | part-push"
"$host_lab" exec 1 sh -c "ipconf-check --num-servers 2 ip_config.txt |
    part-map --part-config out/g.json --workspace /srv/job --script-folder code |
    part-push >pushed.jsonl"
jq -rs 'map(select(.type == "pushed")) | "\(length) files, \(map(.sent_bytes // 0) | add) bytes sent"' pushed.jsonl

say "Training on 4 hosts, each with 2 servers and 2 trainers with a sampler each: host-probe | dgl-env | dgl-spawn"
"$host_lab" exec 1 sh -c "ipconf-check --num-servers 2 ip_config.txt |
    host-probe --num-servers 2 --workspace /srv/job --python '$python' |
    dgl-env --workspace /srv/job --part-config data/g.json --num-trainers 2 --num-samplers 1 --num-servers 2 \
        -- '$python' code/train.py --ip-config ip_config.txt --part-config data/g.json |
    dgl-spawn" | progress

say "Looking for processes and files in /dev/shm that are left on the hosts"
if "$host_lab" left; then
    echo "nothing is left"
else
    echo "the job left something behind"
    exit 1
fi

say "Ending the hosts"
"$host_lab" down
cat <<'END'
the hosts and their files are gone

What to do next:
  tools/host-lab/host-lab up 4      # such hosts to try things on; it says how
  cp -r examples/dgl myjob         # a repository that trains with make, as a beginning of yours: see its Makefile
  make install PREFIX=~/.local      # the tools, their manual (man dgl-tools) and dgl.mk, for your own cluster
END
