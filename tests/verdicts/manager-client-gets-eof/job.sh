plan --num-workers 1 'python3 train.py; status=$?; [ $RANK = 1 ] || sleep 4; exit $status'
launch
