#!/bin/sh
# An epilog of Slurm (slurm.conf: Epilog=/etc/slurm/dgl-tools-epilog.sh), which root runs on each node after each job. It removes the
# agent that sbcast has copied, and DGL's files in /dev/shm. Set PATH to where the tools are. The workspace of a job stays, because the
# batch scripts of the examples remove it when they have fetched the results: what is left may be the only copy.
PATH=/opt/dgl-tools/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
[ -n "$SLURM_JOB_USER" ] && [ -n "$SLURM_JOB_ID" ] || exit 0
HOME=$(getent passwd "$SLURM_JOB_USER" | cut -d: -f6)
export PATH HOME DGL_TOOLS_CONNECT=local
# as the user, because anybody can make names in /tmp
as_user() { runuser -u "$SLURM_JOB_USER" -- "$@"; }
as_user rm -f "/tmp/host-agent-$SLURM_JOB_ID"
# files of DGL in /dev/shm that no process maps
echo 127.0.0.1 | ipconf-check - | as_user dgl-reap --stale-shm > /dev/null
# another status would drain the node
exit 0
