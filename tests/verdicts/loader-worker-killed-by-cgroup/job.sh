needs torch cgroup
group=/sys/fs/cgroup/memory/verdicts-$$
mkdir $group
echo 800M >$group/memory.limit_in_bytes
plan --num-workers 1 -- python3 train.py
(echo $BASHPID >$group/cgroup.procs && launch)
sleep 1
rmdir $group
