needs strace
# A file system with quotas is not at hand: strace has the kernel say EDQUOT.
mkdir -p checkpoints
touch checkpoints/1.bin
plan --num-workers 1 'if [ $RANK = 1 ]; then
    exec strace -f -qq -e inject=write:error=EDQUOT:when=3+ -P /srv/job/checkpoints/1.bin python3 train.py 2>strace.txt; fi; exec python3 train.py'
launch
