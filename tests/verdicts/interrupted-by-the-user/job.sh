plan --num-workers 2 -- python3 train.py
(sleep 5; pkill -INT -x dgl-spawn --ns $$ --nslist net) &
launch
