needs cgroup
group=/sys/fs/cgroup/pids/verdicts-$$
mkdir $group
echo 120 >$group/pids.max
plan --num-workers 1 -- python3 train.py
(echo $BASHPID >$group/cgroup.procs && launch)
sleep 1
rmdir $group
