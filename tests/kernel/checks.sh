# What the trials of tests/kernel.sh share. They run in a directory of their own, with the tools in PATH.
# shellcheck shell=bash disable=SC2154 # work, dir and trial are tests/kernel.sh's

# A command line on the machine, as root and as an ordinary user.
guest() { ssh -o ControlMaster=auto -o ControlPath="$work/control-%r" -o ControlPersist=60 10.78.0.2 "$@"; }
guest_user() { ssh -o ControlMaster=auto -o ControlPath="$work/control-%r" -o ControlPersist=60 user@10.78.0.2 "$@"; }

# One check: a script that ends with 0. What it says is shown where it does not; the files that it names behind that, too.
is() { # WHAT SCRIPT [FILE...]
    local begun=$SECONDS status=0
    (eval "$2") >"$work/said" 2>&1 </dev/null || status=$?
    if [ "$status" = 0 ]; then
        echo "ok      $trial: $1 ($((SECONDS - begun)) s)" | tee -a "$dir/checks"
        return
    fi
    echo "FAILED  $trial: $1 (status $status)" | tee -a "$dir/checks"
    tail -n 30 "$work/said" | sed 's/^/          /'
    [ $# -le 2 ] || tail -n 20 "${@:3}" 2>/dev/null | sed 's/^/          /' || true
    return 0
}

# A figure for people, and in a file beside the checks.
figure() { echo "        $trial: $*" | tee -a "$dir/figures"; }

# Waits until a script is so.
soon() { # SECONDS SCRIPT
    local end=$((SECONDS + $1))
    until (eval "$2") >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || { echo "waited $1 s for: $2"; return 1; }
        sleep 0.2
    done
}

# What jobs have left on the machine: processes that carry a token, files in /dev/shm.
nothing_left() {
    # shellcheck disable=SC2016 # the shell's there
    guest '! grep -lzs "^DGL_TOOLS_TOKEN=" /proc/[0-9]*/environ && [ -z "$(ls -A /dev/shm)" ]'
}
