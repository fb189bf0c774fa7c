#!/bin/sh
# Ranks of Open MPI below the processes of a job, one on each host: that of rank 0 is mpirun, and all others are what mpirun would start
# there by ssh.
#
# Usage: mpi.sh ADDRESS[:RANKS],... COMMAND...   RANK says which host it is
#        mpi.sh ADDRESS ORTED...                  as mpirun calls it in the place of ssh; KEEPS is set
if [ -n "${KEEPS:-}" ]; then
    address=$1
    shift
    echo "$*" >"$TRIALS/orted-$address.new"
    mv "$TRIALS/orted-$address.new" "$TRIALS/orted-$address"
    while kill -0 "$PPID" 2>/dev/null; do sleep 0.5; done
    exit
fi
addresses=$1 host=$RANK
shift
unset RANK # of the host, not of what mpirun starts
if [ "$host" = 0 ]; then
    export KEEPS=1
    exec mpirun --allow-run-as-root --leave-session-attached --host "$addresses" --mca plm_rsh_agent "$0" --mca plm_rsh_no_tree_spawn 1 \
        --mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 "$@"
fi
address=$(echo "$addresses" | cut -d , -f $((host + 1)) | cut -d : -f 1)
until [ -e "$TRIALS/orted-$address" ]; do sleep 0.1; done
exec sh -c "exec $(cat "$TRIALS/orted-$address")"
