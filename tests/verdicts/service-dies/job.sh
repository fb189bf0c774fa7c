plan --program store --on 0 --service -- python3 store.py
plan --program train --num-workers 1 -- python3 train.py {store.master_addr}
launch
