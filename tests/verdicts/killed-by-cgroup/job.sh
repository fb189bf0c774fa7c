needs cgroup
group=/sys/fs/cgroup/memory/verdicts-$$
mkdir $group
echo 300M >$group/memory.limit_in_bytes
plan --num-workers 2 -- python3 train.py
(echo $BASHPID >$group/cgroup.procs && launch)
sleep 1
rmdir $group
