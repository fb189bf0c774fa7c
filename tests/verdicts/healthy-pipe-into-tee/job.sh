plan --num-workers 1 'python3 train.py 2>&1 | tee out-$RANK.txt'
launch
