#!/bin/bash
# Records what dgl-spawn writes when real jobs of DGL, or of torch alone, go wrong on real hosts: the cases of dgl-why's table.
#   record.sh [NAME...]     those faults; without a name all of them. Each becomes tools/dgl-why/tests/recordings/NAME.jsonl
#   DGL=2.1.0 record.sh     the same with another version than 1.0.4, as recordings/2.1.0/NAME.jsonl; see tests/dgl/version.sh
# A fault that this machine cannot be given (one of a cgroup, without root) is left out, and said so.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
cluster=$root/tools/host-lab/host-lab
to=$root/tools/dgl-why/tests/recordings${DGL:+/$DGL}
PATH=${CARGO_TARGET_DIR:-$root/target}/debug:$PATH:/usr/sbin:/sbin
hosts=3

work=$(mktemp -d /var/tmp/dgl-tools-recordings-XXXXXX) # not in /tmp, which every host has for itself
groups=()
end() {
    status=$?
    LAB=$work/lab "$cluster" down || true
    for group in "${groups[@]}"; do rmdir "$group" || true; done
    rm -rf "$work"
    exit "$status"
}
trap end EXIT
trap 'exit 130' INT TERM HUP

say() { printf '%s\n' "record.sh: $*" >&2; }
if [ -n "${DGL:-}" ]; then python=$(tests/dgl/version.sh "$DGL"); else python=$(tests/dgl/python.sh); fi
packages=$("$python" -c 'import dgl, os; print(os.path.dirname(os.path.dirname(dgl.__file__)))' 2>/dev/null)
seq -f 10.77.0.%g $hosts >"$work/ip_config.txt"
export LAB=$work/lab

# What a table needs of the records, and nothing of this machine: the last lines of each process (of trainers with the stacks of all
# their samplers, but for the threads that only wait), places as they would be elsewhere.
trimmed() {
    jq -c --arg python "$python" --arg packages "$packages" --slurp '
        def places: gsub($packages; "/opt/dgl/lib/python3/site-packages") | gsub($python; "/opt/dgl/bin/python3")
            | gsub("/(usr|root)/[^ \"]*lib/python3[.0-9]*/(site|dist)-packages"; "/opt/dgl/lib/python3/site-packages")
            | gsub("/usr/(local/)?lib/python3[.0-9]*"; "/usr/lib/python3")
            | gsub("/root/[^ \"]*/lib/python3[.0-9]*"; "/usr/lib/python3");
        [.[] | select(.type == "process" and .role == "server") | .id] as $servers
        | ([to_entries[] | select(.value.type == "output") | {key, id: .value.id}] | group_by(.id)
            | map(.[-(if ([.[0].id] | inside($servers)) then 12 else 90 end):][].key)) as $kept
        | to_entries[] | select(.value.type != "output" or (.key as $key | $kept | index($key))) | .value
        | select(.type != "graph" and .type != "file" and .type != "pushed" or $ENV.KEEP_FILES == "1")
        | if .type == "process" then .env = {} | .argv = ["python3", "code/train.py"] else . end
        | select(.type != "output" or (.line | test("NetType~|Extension modules|^, |^ +File.*(threading|socket|resource_sharer).py") | not))
        | if .type == "file" then ({type, id, of, host, kind, src: "out/file", dst, bytes, mode} | del(.[] | nulls)) else . end
        | if .type == "host" then del(.path, .home, .python_path, .workspace_fs, .free_bytes, .iface, .nofile, .master_port) else . end
        | walk(if type == "string" then places else . end)'
}

# A job that fails; its records in NAME.jsonl. What is done to it while it runs: DURING, a function and its words.
record() { # NAME SPAWN-OPTIONS -- TRAIN.PY-WORDS
    local name=$1 spawn=() status=0
    shift
    while [ "$1" != -- ]; do spawn+=("$1"); shift; done
    shift
    : >"$work/profile.jsonl"
    "$cluster" exec 1 sh -c "cd '$work' && <pushed.jsonl host-probe --workspace /srv/job --python '$python' |
        dgl-env ${PROCESSES:---num-trainers 1 --num-samplers ${SAMPLERS:-0}} --num-omp-threads 1 --env FAULT=${FAULT:-} \
        --env FAULT_RANK=${FAULT_RANK:-1} --env SLOWER=${SLOWER:-0} --env SECONDS=${SECONDS_LONG:-30} \
        -- '$python' $* >job.jsonl && dgl-spawn ${spawn[*]} --job $name <job.jsonl >run.jsonl 2>run.err" &
    local job=$!
    if [ -n "${DURING:-}" ]; then $DURING || say "$name: $DURING failed"; fi
    wait $job || status=$?
    [ -s "$work/run.jsonl" ] || { say "$name: no records: status $status"; cat "$work/run.err" >&2; return 1; }
    mkdir -p "$to"
    cat "$work/run.jsonl" "$work/profile.jsonl" | trimmed >"$to/$name.jsonl"
    say "$name: status $status, $(wc -c <"$to/$name.jsonl") bytes"
}

train="dgl/train.py --ip-config ip_config.txt --part-config data/g.json"
faulty="dgl/faulty.py --ip-config ip_config.txt --part-config data/g.json"

# Waits until the records of the run have what a pattern says, as long as a loaded machine may need.
await() { # PATTERN
    for _ in $(seq 600); do
        ! grep -qE "$1" "$work/run.jsonl" 2>/dev/null || return 0
        sleep 0.5
    done
    say "waited in vain for $1"
    return 1
}

# The pids, as this machine has them, of processes of a host with such a variable.
with_variable() { # HOST NAME=VALUE
    local of environ
    of=$(readlink "/proc/$(pgrep -P "$(<"$LAB/h$1/pid")" -f " init $1 /")/ns/pid")
    for environ in /proc/[0-9]*/environ; do
        if grep -qzx "$2" "$environ" 2>/dev/null && [ "$(readlink "${environ%environ}ns/pid")" = "$of" ]; then
            environ=${environ#/proc/}
            echo "${environ%/environ}"
        fi
    done
}

# A cgroup of version 1 or 2 with one file set; status 1 where none can be made.
group() { # CONTROLLER FILE-IN-V1 VALUE-IN-V1 FILE-IN-V2 VALUE-IN-V2
    local folder=/sys/fs/cgroup/$1 file=$2 value=$3
    if [ ! -d "$folder" ]; then folder=/sys/fs/cgroup file=$4 value=$5; fi
    folder=$folder/dgl-tools-recordings-$1-$$
    mkdir "$folder" 2>/dev/null && echo "$value" 2>/dev/null >"$folder/$file" || return
    groups+=("$folder")
    made=$folder
}

# Adds profiles of 20 seconds to the records.
profile() { # JOB SECONDS-AFTER-THE-START
    await '"type":"started"' || return
    sleep "$2"
    "$cluster" exec 1 sh -c "cd '$work' && dgl-stacks --job $1 --record 20s <job.jsonl" |
        grep '"type":"profile"' >"$work/profile.jsonl"
}

starve_server() {
    await '"type":"started".*"role":"server","rank":1' || return
    local pid
    for pid in $(with_variable 2 DGL_SERVER_ID=1); do echo "$pid" >"$made/cgroup.procs"; done
}

# A host sees its cgroups, as hosts do; those of a cluster of this machine have a new /sys.
show_cgroups() { # HOST
    local kind="cgroup2 none"
    [ ! -d /sys/fs/cgroup/memory ] || kind="cgroup -o memory none"
    "$cluster" exec 1 ssh "h$1" "mount -t $kind /sys/fs/cgroup"
}

# Each host of the job is a tree of processes below its pid 1.
slow_host() {
    pgrep -P "$(<"$LAB/h3/pid")" -f " init 3 /" >"$made/cgroup.procs"
    pgrep --ns "$(pgrep -P "$(<"$LAB/h3/pid")" -f ' init 3 /')" --nslist pid | while read -r pid; do
        echo "$pid" >"$made/cgroup.procs" || true
    done
}

cut_host() {
    await '"line":"epoch 1 ' || return
    "$cluster" cut 3
}

copy() { # OUT
    "$cluster" exec 1 sh -c "cd '$work' && rm -rf job.jsonl run.jsonl && ipconf-check ip_config.txt |
        host-probe --workspace /srv/job --python '$python' | part-map --part-config $1/g.json --workspace /srv/job \
        --script-folder '$root/tests/dgl' | part-push >pushed.jsonl"
}

up() {
    "$cluster" down
    "$cluster" up $hosts --quiet >/dev/null
}

partition() { DGLBACKEND=pytorch "$python" "$root/tests/dgl/partition.py" "$@" --num-parts $hosts 2>"$work/partition.log" >/dev/null; }

fault() {
    rm -f "$work/run.jsonl" "$work/job.jsonl"
    case $1 in
        healthy) record healthy -- "$train" --num-epochs 3 ;;
        sampler-killed) SAMPLERS=1 FAULT=sampler record "$1" --timeout 100s -- "$faulty" ;;
        trainer-raises) record "$1" -- "$train" --fail-rank 1 --fail-epoch 1 ;;
        trainer-raises-and-stays) FAULT=raise record "$1" --timeout 75s -- "$faulty" ;;
        trainer-hangs-in-barrier) FAULT=barrier record "$1" --timeout 75s -- "$faulty" ;;
        trainer-raises-and-stalls) FAULT=raise record "$1" --stall-timeout 20s:end -- "$faulty" ;;
        trainer-stalls-in-barrier) FAULT=barrier record "$1" --stall-timeout 20s:end -- "$faulty" ;;
        slow-ddp-*)
            PROCESSES="--role worker --num-workers 2" FAULT=slow FAULT_RANK=3 SLOWER=${1#slow-ddp-}e-2 \
                DURING="profile $1 3" record "$1" -- dgl/ddp.py ;;
        slow-trainer-*)
            DURING="profile $1 8" FAULT=slow SLOWER=${1#slow-trainer-}e-2 \
                record "$1" --timeout 60s -- "$faulty" --num-epochs 100000 ;;
        ddp-*)
            PROCESSES="--role worker --num-workers 2" FAULT=${1#ddp-} FAULT_RANK=3 \
                record "$1" --stall-timeout 10s:end -- dgl/ddp.py ;;
        network-cut) DURING=cut_host record "$1" --host-timeout 5s -- "$train" --num-epochs 100000; "$cluster" mend 3 ;;
        server-out-of-memory)
            group memory memory.limit_in_bytes 90M memory.max 90M || { say "$1: left out: no cgroup can be made here"; return; }
            show_cgroups 2
            DURING=starve_server record "$1" -- "$train" ;;
        slow-host)
            group cpu cpu.cfs_quota_us 12000 cpu.max '12000 100000' || { say "$1: left out: no cgroup can be made here"; return; }
            up && copy out && slow_host && record "$1" -- "$train" --num-epochs 3; up && copy out ;;
        shm-full)
            "$cluster" down && SHM=1m "$cluster" up $hosts --quiet >/dev/null && copy large && record "$1" --no-preflight -- "$train"
            up && copy out ;;
        uneven-partitions)
            copy uneven && KEEP_FILES=1 record "$1" -- "$train" --num-epochs 3; copy out ;;
        *) say "no fault $1"; return 2 ;;
    esac
}

main() {
    partition --out "$work/out"
    partition --out "$work/large" --num-nodes 100000
    partition --out "$work/uneven" --uneven --num-nodes 20000
    up
    copy out
    [ $# -gt 0 ] || set -- healthy trainer-raises trainer-raises-and-stays trainer-raises-and-stalls trainer-hangs-in-barrier \
        trainer-stalls-in-barrier sampler-killed server-out-of-memory network-cut shm-full uneven-partitions slow-host \
        ddp-loader ddp-barrier ddp-all-reduce ddp-native ddp-stopped ddp-swallowed ddp-half \
        slow-ddp-0 slow-ddp-20 slow-ddp-100 slow-trainer-0 slow-trainer-100
    for name; do fault "$name" || say "$name: not recorded"; done
}

main "$@"
