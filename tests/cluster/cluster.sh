#!/bin/bash
# Real hosts on one machine: see usage() for what it does. How it is built:
#
#   switch          a network and a PID namespace; `cluster.sh switch` is its pid 1, owns the bridge br0 and obeys the
#    |              fifo $LAB/ctl. When it dies the kernel ends all that is below it, so `down` is one kill.
#    +- p1 = eth0   host 1: network, mount, PID, UTS and IPC namespaces of its own; `cluster.sh init` is its pid 1
#    +- p2 = eth0   host 2 ...
#
# The switch has no card of the machine in it: the hosts reach one another and nothing else.
# Without root all of it lies in one user namespace, in which the caller keeps his uid and has all capabilities.
# State: $LAB/pid (the switch), $LAB/hK/pid (the parent of host K's pid 1), both as pids of the machine.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin # sshd, ip and tc: not on every user's PATH

me=$(readlink -f "$0")
checkout=${me%/tests/cluster/*}
user=$(id -un)
home=$(getent passwd "$(id -u)" | cut -d: -f6) # what sshd goes by; $HOME may be another one's after su or sudo
LAB=$(readlink -m "${LAB:-/var/tmp/dgl-tools-cluster-$user}")
export LAB

# Root needs no user namespace, and without one the hosts have all of the machine's uids.
if [ "$(id -u)" = 0 ]; then
    unshare_user=() nsenter_user=()
else
    unshare_user=(-U --map-current-user --keep-caps)
    nsenter_user=(-U --preserve-credentials)
fi

usage() {
    cat <<EOF2
Real hosts on one machine, to rehearse a cluster job before it meets the cluster.

Each host has its own name, address, processes, /tmp, /srv, /dev/shm, ~/.ssh and ~/.local/state/dgl-tools, and a
real sshd on port 22 that lets you in with a key. The rest of the file system is this machine's, as a shared disk would be. Works as root
and as an ordinary user.

  cluster.sh up N [RATE]     start hosts h1 to hN at 10.77.0.1 to 10.77.0.N; links shaped to RATE (1gbit, see tc)
  cluster.sh exec K CMD...   run CMD on host K, in this folder if the host has it, with the tools in PATH: those built in
                             this checkout, or else those of your PATH; a signal to the process group reaches CMD,
                             KILL to exec kills it
  cluster.sh left            what jobs have left on the hosts: a line for each process and each file in /dev/shm;
                             status 1 if there is any
  cluster.sh cut K|mend K    pull the network cable of host K; put it back
  cluster.sh stop K|start K  cut the power of host K; switch it on again, with its disk as it was
  cluster.sh down            end every process of the cluster and delete the disks of its hosts

For example:
  cluster.sh up 4
  seq -f 10.77.0.%g 4 >ip_config.txt
  cluster.sh exec 1 ssh h3 hostname
  cluster.sh exec 1 bash
  cluster.sh down

Environment, for 'up':
  LAB                       state folder (now $LAB);
                            one cluster each, any number at a time. \$LAB/hK/srv is the /srv of host K
  SHM=4g                    size of /dev/shm (Docker gives 64m)
  DISK=4g                   size of a /srv in memory, which \$LAB/hK/srv does not show: to measure copying, and not
                            the disk that all hosts of this machine share
  NAMES=1                   0: the names h1 to hN do not resolve
  BASHRC=0                  1: logins read your ~/.bashrc, as on a host of yours
  MAXSTARTUPS, MAXSESSIONS  sshd's limits

An ordinary user has no capabilities in exec; for ip, tc or mount there: cluster.sh exec K ssh hK CMD
EOF2
}

# Status 1: it did not work (of `left`: something is left). 2: wrong use. 69: the machine lacks something.
die() { echo "cluster.sh: $1" >&2; exit "${2:-2}"; }

need() { command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2" 69; }

check_machine() {
    need sshd openssh-server
    need ssh openssh-client
    need ssh-keygen openssh-client
    need ip iproute2
    need tc iproute2
    need pgrep procps
    need unshare util-linux
    need nsenter util-linux
    need setsid util-linux
    need setpriv util-linux
    need mountpoint util-linux
    [[ $(unshare --help) == *--map-current-user* ]] || die "unshare is too old: a newer util-linux is needed" 69
    local why
    why=$(unshare "${unshare_user[@]}" -n -m -p --fork true 2>&1) && return
    [ "$(id -u)" = 0 ] && die "this container may not make namespaces ($why): give it docker run --privileged" 69
    die "ordinary users may not make namespaces here ($why): be root, or set sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces=10000 (Red Hat)" 69
}

# The pid may have gone to a stranger since: only a switch of this very state folder counts.
is_up() {
    local pid cmdline
    { read -r pid <"$LAB/pid"; } 2>/dev/null || return
    cmdline=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline") || return
    [[ $cmdline == *$'\n'switch$'\n'"$LAB" ]]
}

# pid 1 of host K as the machine sees it; nothing and status 1 when the host is stopped.
host_pid() {
    local parent
    { read -r parent <"$LAB/h$1/pid"; } 2>/dev/null && pgrep -P "$parent" -f " init $1 /"
}

check_host() {
    is_up || die "no cluster is up in $LAB: $me up N"
    [[ ${1:-} =~ ^[1-9][0-9]*$ && -d $LAB/h$1 ]] || die "no host '${1:-}' in this cluster"
}

enter() { # K NSENTER-ARG...
    local pid
    pid=$(host_pid "$1") || die "host $1 is stopped: $me start $1"
    exec nsenter -t "$pid" "${nsenter_user[@]}" "${@:2}"
}

# The switch reads its orders from a fifo. A dead switch would block the writer for ever.
order() { timeout 30 tee "$LAB/ctl" <<<"$*" >/dev/null || die "the switch does not answer, see $LAB/log" 1; }

within() { # SECONDS CMD... : try CMD until it succeeds
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}

await_sshd() { # sshd writes its pid file once it listens
    within 30 test -s "$LAB/h$1/sshd.pid" && return
    cat "$LAB/log" "$LAB/h$1/log" "$LAB/h$1/sshd.log" >&2 2>/dev/null || true
    die "host $1 did not start" 1
}

has_link() { [[ $(enter "$1" -n ip link show eth0) != *NO-CARRIER* ]]; }
has_no_link() { ! has_link "$1"; }
is_gone() { [ ! -e "/proc/$1" ]; }

# ---- commands -----------------------------------------------------------------------------------------------------

up() {
    local n=${1:-} rate=${2:-} k
    [[ $n =~ ^[1-9][0-9]*$ && $n -le 250 ]] || die "up: how many hosts, 1 to 250?"
    case $LAB/ in /tmp/* | /srv/* | /dev/shm/* | "$home"/.ssh/*) die "LAB=$LAB cannot be there: a host has a folder of its own in that place" ;; esac
    is_up && die "a cluster is up already in $LAB: $me down"
    check_machine
    # What is deleted below must be ours.
    [ -e "$LAB/.cluster" ] || [ -z "$(ls -A "$LAB" 2>/dev/null)" ] || die "LAB=$LAB is a folder of something else"
    [ -d "$home/.ssh" ] || mkdir -m 700 "$home/.ssh" 2>/dev/null || [ -d "$home/.ssh" ] # another cluster may come up just now
    mkdir -p "$home/.local/state/dgl-tools"
    mkdir -p "$LAB"
    chmod 700 "$LAB"
    cd "$LAB"
    : >.cluster
    rm -rf ctl log pid h[0-9]*
    [ -f id ] || ssh-keygen -q -t ed25519 -N '' -f id
    echo "$rate" >rate
    echo "127.0.0.1 localhost" >hosts
    : >known_hosts
    sed '/^tty:/d' /etc/group >group # sshd would give a terminal to group tty, which has no id in a user namespace
    for ((k = 1; k <= n; k++)); do make_host "$k"; done
    for ((k = 1; k <= n; k++)); do cp known_hosts "h$k/ssh/"; done
    mkfifo ctl
    trap 'down' EXIT # a half-started cluster is of no use
    setsid unshare "${unshare_user[@]}" -n -m -p --fork --kill-child "$me" switch "$LAB" >log 2>&1 </dev/null &
    within 30 is_up || { cat log >&2; die "the switch did not start" 1; }
    for ((k = 1; k <= n; k++)); do order start "$k"; done
    for ((k = 1; k <= n; k++)); do await_sshd "$k"; done
    trap - EXIT
    say_what_is_up "$n"
}

say_what_is_up() { # N
    local hosts="$1 hosts are up: h1 to h$1, 10.77.0.1 to 10.77.0.$1; each has"
    [ "$1" -gt 1 ] || hosts="1 host is up: h1, 10.77.0.1; it has"
    cat <<EOF2
$hosts its own network, processes, /srv and sshd

  $0 exec 1 bash    a shell on the first$(tools_told)
  seq -f 10.77.0.%g $1 >ip_config.txt    the hosts, as DGL and ipconf-check read them
  $0 left    what jobs have left on them; --help shows how to cut a cable, or the power of one
  $0 down    ends them
EOF2
}

make_host() {
    mkdir -p "h$1"
    mkdir -m 755 "h$1/srv"
    mkdir -m 1777 "h$1/tmp"
    mkdir -m 700 "h$1/ssh" "h$1/state"
    mkfifo "h$1/never"
    ssh-keygen -q -t ed25519 -N '' -C "h$1" -f "h$1/key"
    cp id "h$1/ssh/id_ed25519"
    cp id.pub "h$1/ssh/authorized_keys"
    echo "10.77.0.$1 h$1" >>hosts
    echo "10.77.0.$1,h$1 $(cut -d' ' -f1,2 "h$1/key.pub")" >>known_hosts
    # UsePAM: needs root. StrictModes: the home may belong to anybody in a container.
    cat >"h$1/sshd_config" <<EOF2
HostKey $LAB/h$1/key
PidFile $LAB/h$1/sshd.pid
PasswordAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
Subsystem sftp internal-sftp
MaxStartups ${MAXSTARTUPS:-10:30:100}
MaxSessions ${MAXSESSIONS:-10}
EOF2
}

# The folders of the tools that were built last in this checkout, each with a colon behind it; nothing where none are, or where
# PATH begins with tools built here already, as in tests.
built_tools() {
    local target=${CARGO_TARGET_DIR:-$checkout/target} spawn
    target=$(readlink -m "$target")
    [[ $(command -v dgl-spawn) != "$target"/* ]] || return 0
    spawn=$(find "$target/release/dgl-spawn" "$target/debug/dgl-spawn" -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1)
    [ -z "$spawn" ] || printf %s "$(dirname "${spawn#* }"):$checkout/tools/dgl-copy:$checkout/tools/dgl-launch:"
}

# What a shell on a host finds in its PATH.
tools_told() {
    local built
    built=$(built_tools)
    if [ -n "$built" ]; then
        echo ", with the tools of ${built%%:*}"
    elif command -v dgl-spawn >/dev/null; then
        echo ", with the tools of $(dirname "$(command -v dgl-spawn)")"
    else
        echo "; the tools are not built: make build"
    fi
}

# nsenter stays between us and CMD, in the same process group, and passes no signal on. So it ignores those that the whole
# group gets, as of Ctrl-C, and waits for what CMD makes of them; when nsenter is killed, CMD is killed with it.
# A mount namespace is entered in its /, so CMD has to go back to where the caller is.
exec_on() {
    check_host "${1:-}"
    [ $# -gt 1 ] || die "exec $1: run what?"
    trap '' HUP INT QUIT TERM
    PATH=$(built_tools)$PATH
    # shellcheck disable=SC2016 # the inner shell's $1
    enter "$1" -n -m -p -u -i -- setpriv --pdeathsig KILL env --default-signal=HUP,INT,QUIT,TERM \
        sh -c 'cd "$1" 2>/dev/null || cd; shift; exec "$@"' sh "$PWD" "${@:2}"
}

stop() {
    local pid
    check_host "${1:-}"
    pid=$(host_pid "$1") || return 0
    kill -KILL "$pid" # the kernel ends the rest of its namespace before this pid is gone
    within 30 is_gone "$pid" || die "host $1 does not end" 1
}

start() {
    check_host "${1:-}"
    host_pid "$1" >/dev/null && die "host $1 is up already"
    rm -f "$LAB/h$1/sshd.pid"
    order start "$1"
    await_sshd "$1"
}

cut_link() {
    check_host "${1:-}"
    host_pid "$1" >/dev/null || die "host $1 is stopped"
    order link "$1" down
    within 30 has_no_link "$1" || die "the link of host $1 is still up" 1
}

mend_link() {
    check_host "${1:-}"
    host_pid "$1" >/dev/null || die "host $1 is stopped"
    order link "$1" up
    within 30 has_link "$1" || die "the link of host $1 is still down" 1
}

left() {
    local dir k found=0
    is_up || die "no cluster is up in $LAB: $me up N"
    for dir in $(printf '%s\n' "$LAB"/h[0-9]* | sort -V); do
        k=${dir##*/h}
        host_pid "$k" >/dev/null || continue # a stopped host has neither processes nor memory
        left_on "$k" | grep . && found=1
    done
    return "$found"
}

# Part of the host are pid 1, the sshd that listens, and what looks: the shell that becomes ps. A zombie (Z) is nobody's:
# its parent is in this list, or is pid 1 and about to reap it. Pids are the host's own.
left_on() {
    # shellcheck disable=SC2016 # the inner shell's $$
    exec_on "$1" sh -c 'echo $$; find /dev/shm -mindepth 1 -printf "shm %P\n"; exec ps -e -ww -o state=,pid=,args=' |
        awk -v host="h$1" -v sshd="$(<"$LAB/h$1/sshd.pid")" '
            NR == 1 { looking = $1; next }
            $1 == "shm" { print host, $0; next }
            $1 == "Z" || $2 == 1 || $2 == sshd || $2 == looking { next }
            { sub(/^. */, ""); print host, "process", $0 }'
}

down() {
    local pid
    [ -e "$LAB/.cluster" ] || return 0
    if is_up; then
        read -r pid <"$LAB/pid"
        kill -KILL "$pid"
        within 30 is_gone "$pid" || die "the switch, pid $pid, does not end" 1
    fi
    rm -rf "$LAB"/h[0-9]*/{srv,tmp} "$LAB/pid" "$LAB/ctl" # logs and keys stay
}

# ---- what runs inside ---------------------------------------------------------------------------------------------

switch() {
    local order k state pid _
    ip link add br0 type bridge
    ip link set br0 up
    ip link set lo up
    exec 3<>"$LAB/ctl" # for reading and writing: there is no end of file when a writer goes
    read -r pid _ </proc/self/stat # the machine's number for this process: /proc is still the machine's here
    echo "$pid" >"$LAB/pid"
    while read -r order k state <&3; do
        case $order in
            start)
                # in memory it outlives a host that is stopped, and goes with the switch
                [ -z "${DISK:-}" ] || mountpoint -q "$LAB/h$k/srv" || mount -t tmpfs -o "size=$DISK,mode=755" none "$LAB/h$k/srv"
                setsid unshare -n "$me" host "$k" "$LAB" >"$LAB/h$k/log" 2>&1 </dev/null 3>&- &
                ;;
            link) ip link set "p$k" "$state" || true ;;
        esac
    done
}

host() { # in host K's network namespace, not yet in its others
    local k=$1 switch_net rate pid _ dev
    switch_net=/proc/$(<"$LAB/pid")/ns/net
    rate=$(<"$LAB/rate")
    nsenter --net="$switch_net" ip link del "p$k" 2>/dev/null || true # of the life before a `stop`
    ip link add eth0 address "$(printf 02:00:0a:4d:00:%02x "$k")" type veth peer name "p$k" netns "$switch_net"
    nsenter --net="$switch_net" ip link set "p$k" master br0 up
    ip link set lo up
    ip addr add "10.77.0.$k/24" dev eth0
    ip link set eth0 up
    ip route add default dev eth0 # leads nowhere, but DGL to 0.6 learns its address from the default route
    if [ -n "$rate" ]; then
        for dev in "tc qdisc add dev eth0" "nsenter --net=$switch_net tc qdisc add dev p$k"; do
            $dev root tbf rate "$rate" burst 256kb latency 50ms
        done
    fi
    read -r pid _ </proc/self/stat
    echo "$pid" >"$LAB/h$k/pid"
    exec unshare -m -p -u -i --fork --kill-child --mount-proc "$me" init "$k" "$LAB"
}

init() { # pid 1 of host K
    local h=$LAB/h$1
    hostname "h$1"
    mount -t sysfs none /sys 2>/dev/null || true # so that /sys/class/net shows this host's cards
    mount -t tmpfs -o "size=${SHM:-4g},mode=1777" none /dev/shm
    mount -t devpts -o newinstance,ptmxmode=666 none /dev/pts
    mount --bind /dev/pts/ptmx /dev/ptmx
    mount --bind "$h/srv" /srv
    mount --bind "$h/tmp" /tmp
    mount --bind "$h/ssh" "$home/.ssh"
    mount --bind "$h/state" "$home/.local/state/dgl-tools"
    # What a shell reads there at each login costs seconds with pyenv or conda in it, and pyenv's lock survives a host whose power
    # is cut: each later login on this machine would wait a minute for it.
    [ "${BASHRC:-0}" != 0 ] || [ ! -e "$home/.bashrc" ] || mount --bind /dev/null "$home/.bashrc"
    [ "${NAMES:-1}" = 0 ] || mount --bind "$LAB/hosts" /etc/hosts
    if [ "$(id -u)" = 0 ]; then mkdir -p /run/sshd; else mount --bind "$LAB/group" /etc/group; fi
    echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start
    "$(command -v sshd)" -f "$h/sshd_config" -E "$h/sshd.log"
    # A pid 1 has to reap what its host's processes leave behind. bash does, while it waits for what never comes.
    exec 3<>"$h/never"
    while :; do read -r _ <&3 || true; done
}

case "${1:-}" in
    up) shift; up "$@" ;;
    exec) shift; exec_on "$@" ;;
    stop) shift; stop "$@" ;;
    start) shift; start "$@" ;;
    cut) shift; cut_link "$@" ;;
    mend) shift; mend_link "$@" ;;
    left) left ;;
    down) down ;;
    switch | host | init) "$1" "${@:2}" ;; # from here on LAB and not the last argument counts: that is for ps and is_up
    '' | -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
