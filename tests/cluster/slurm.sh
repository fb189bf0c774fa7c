#!/bin/bash
# A real Slurm on the hosts of host-lab: see usage() for what it does. It needs Debian's slurmctld, slurmd, slurm-client and munge, but
# none of their services: munged, slurmctld and slurmd run on the hosts alone, and go down with them.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

cluster=$(readlink -f "$(dirname "$(readlink -f "$0")")/../../tools/host-lab/host-lab")
LAB=$(readlink -m "${LAB:-/var/tmp/dgl-tools-host-lab-$(id -un)}")
export LAB

usage() {
    cat <<EOF2
A real Slurm on the hosts that 'host-lab up N' has started.

  slurm.sh up      start it: slurmctld on host 1, slurmd on every host; partition p has all hosts
  slurm.sh left    as 'host-lab left', without Slurm's own daemons
  slurm.sh down    end every job and every daemon; 'host-lab down' does so too

For example:
  host-lab up 2
  slurm.sh up
  host-lab exec 1 srun -N2 hostname
  slurm.sh down

Environment:
  LAB                 state directory of the hosts (now $LAB)
  KILLWAIT=30         seconds between TERM and KILL, when a job is ended
EOF2
}

die() { echo "slurm.sh: $1" >&2; exit "${2:-2}"; }

need() { command -v "$1" >/dev/null || die "$1 is missing: apt-get install $2" 69; }

hosts() { find "$LAB" -maxdepth 1 -name 'h[0-9]*' -printf '%f\n' | sort -V | tr -d h; }

# By ssh, because an ordinary user has no capabilities in exec.
on() { "$cluster" exec "$1" ssh "h$1" "PATH=\$PATH:/usr/sbin:/sbin; $2"; }

all_idle() { [ "$("$cluster" exec 1 sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" = "$1" ]; }

config() { # LAST: the number of the last host
    cat <<EOF2
ClusterName=hosts
SlurmctldHost=h1(10.77.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=/srv/slurm/munge.socket
StateSaveLocation=/srv/slurm/state
SlurmdSpoolDir=/srv/slurm/spool
SlurmctldPidFile=/srv/slurm/slurmctld.pid
SlurmdPidFile=/srv/slurm/slurmd.pid
SlurmctldLogFile=/srv/slurm/slurmctld.log
SlurmdLogFile=/srv/slurm/slurmd.log
# needs neither systemd nor cgroups
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
# several jobs on a host, and more processors than this machine has
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
ReturnToService=2
KillWait=${KILLWAIT:-30}
NodeName=h[1-$1] NodeAddr=10.77.0.[1-$1] CPUs=16 RealMemory=4000 State=UNKNOWN
PartitionName=p Nodes=h[1-$1] Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
EOF2
}

up() {
    local k last
    need slurmctld slurmctld
    need slurmd slurmd
    need srun slurm-client
    need munged munge
    last=$(hosts | tail -n 1)
    [ -n "$last" ] || die "no hosts are up in $LAB: $cluster up N"
    mkdir -p "$LAB/slurm"
    config "$last" >"$LAB/slurm/slurm.conf"
    # slurmd ends without this file
    echo CgroupPlugin=cgroup/v1 >"$LAB/slurm/cgroup.conf"
    (umask 077; head -c 1024 /dev/urandom >"$LAB/slurm/munge.key")
    for k in $(hosts); do
        # --force: to an ordinary user nobody he knows owns /
        on "$k" "mount --bind '$LAB/slurm' /etc/slurm && mkdir -p /srv/slurm/state /srv/slurm/spool && cd /srv/slurm &&
            munged --force --key-file='$LAB/slurm/munge.key' --socket=/srv/slurm/munge.socket --pid-file=/srv/slurm/munged.pid \
                --log-file=/srv/slurm/munged.log --seed-file=/srv/slurm/munge.seed &&
            { [ $k != 1 ] || slurmctld -c -i; } && slurmd -N h$k" >"$LAB/slurm/h$k.log" 2>&1 </dev/null ||
            { cat "$LAB/slurm/h$k.log" >&2; die "Slurm did not start on host $k" 1; }
    done
    for _ in {1..300}; do
        all_idle "$last" && return
        sleep 0.1
    done
    "$cluster" exec 1 sinfo -N -l >&2
    die "not every host became idle" 1
}

left() {
    local found
    found=$("$cluster" left) && return
    found=$(grep -vE ' process [0-9]+ (: slurmscriptd|(slurmctld|slurmd|munged) .*)$' <<<"$found") || return 0
    printf '%s\n' "$found"
    return 1
}

down() {
    local k
    "$cluster" exec 1 scancel -f --user="$(id -un)" || true
    for k in $(hosts); do
        # shellcheck disable=SC2016 # the host's shell's variables
        on "$k" 'for name in slurmctld slurmd munged; do
            read -r pid 2>/dev/null </srv/slurm/$name.pid && kill $pid && while [ -e /proc/$pid ]; do sleep 0.05; done
        done; umount /etc/slurm; true' || true
    done
}

case "${1:-}" in
    up | left | down) "$1" ;;
    '' | -h | --help) usage ;;
    *) usage >&2; exit 2 ;;
esac
