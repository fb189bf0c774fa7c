#!/bin/bash
# Job after job on real hosts, each ended at a random moment in a random way: after each nothing may be left, no process, no shared
# memory, no port. JOBS=200 of them; SEED= repeats a run. Stops at the first that leaves something.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
PATH=$target/${PROFILE:-debug}:$PATH
cluster=$PWD/tools/host-lab/host-lab tree=$PWD/tests/tree.py
hosts=3 jobs=${JOBS:-200}
RANDOM=${SEED:=$((RANDOM))}
work=$(mktemp -d "$target/soak-XXXXXX")
LAB=$(mktemp -d /var/tmp/dgl-tools-soak-XXXXXX) # also where a user has hosts of his own in LAB
export LAB
trap '"$cluster" down || true; rm -rf "$work" "$LAB"' EXIT
cd "$work"

shapes=(direct torchrun daemon)
ends=(KILL KILL INT TERM HUP trainer server trainer-exits server-exits sshd)

records() { # SHAPE NAME
    local k
    for ((k = 0; k < hosts; k++)); do
        jq -cn --argjson k "$k" --argjson n "$hosts" '{type: "host", id: $k, of: $n, ip: "10.77.0.\($k + 1)", port: 30050}'
        jq -cn --argjson k "$k" --argjson n "$hosts" --arg tree "$tree" --arg shape "$1" --arg name "$2" '("server", "trainer") |
            {type: "process", id: ($k * 2 + (if . == "server" then 0 else 1 end)), of: ($n * 2), host: $k, ip: "10.77.0.\($k + 1)", role: ., rank: $k,
             cwd: "/srv", env: {PORT: "30050"}, argv: [$tree, ., $shape, $name, "/srv"]} + (if . == "server" then {port: 30050} else {} end)'
    done
}

pid_on() { jq -r --argjson k "$1" --arg role "$2" 'select(.type == "started" and .host == $k and .role == $role) | .pid' out.jsonl; }

end_it() { # HOW NAME: now
    case $1 in
        trainer | server) "$cluster" exec 3 kill -KILL "$(pid_on 2 "$1")" ;;
        trainer-exits | server-exits) "$cluster" exec 2 touch "/srv/$2-${1%-exits}" ;;
        sshd) "$cluster" exec 3 pkill -KILL -f 'sshd: .*notty' ;;
        *) "$cluster" exec 1 kill "-$1" "$(<pid)" ;;
    esac
}

nothing_left() {
    local try
    for ((try = 0; try < 100; try++)); do
        left=$("$cluster" left | grep -v ' sshd: ') || return 0
        sleep 0.2
    done
    return 1
}

"$cluster" up "$hosts" --quiet >/dev/null
echo "soak: $jobs jobs, SEED=$SEED"
begun=$SECONDS
for ((n = 1; n <= jobs; n++)); do
    shape=${shapes[RANDOM % 3]} how=${ends[RANDOM % ${#ends[@]}]}
    # what a process maps is known a second later: one that is killed sooner may leave its shared memory
    case $how in trainer | server | *-exits) wait=25 ;; *) wait=0 ;; esac
    after=$((wait + RANDOM % 20)) name=soak$n
    records "$shape" "$name" >job.jsonl
    rm -f pid out.jsonl
    # shellcheck disable=SC2016 # the inner shell's
    "$cluster" exec 1 env PATH="$PATH" sh -c 'cd "$1"; echo $$ >pid; exec dgl-spawn --job "$2" --grace 500ms <job.jsonl >out.jsonl 2>err' sh "$work" "$name" &
    launcher=$!
    until [ "$(grep -c '"type":"started"' out.jsonl 2>/dev/null)" = $((hosts * 2)) ] || ! kill -0 $launcher 2>/dev/null; do sleep 0.1; done
    sleep "$((after / 10)).$((after % 10))"
    end_it "$how" "$name" 2>/dev/null || how="$how, which came too late: $(tail -n 1 err)"
    status=0
    { wait "$launcher"; } 2>/dev/null || status=$? # bash would tell who was killed
    if ! nothing_left; then
        echo "soak: job $n, SEED=$SEED ($shape, $how after $after tenths, status $status) left:"
        echo "$left"
        cat err
        exit 1
    fi
    case $how in *,*) echo "soak: job $n: $how" ;; esac
    [ $((n % 20)) -ne 0 ] || echo "soak: $n jobs, nothing left, $((SECONDS - begun)) s"
done
