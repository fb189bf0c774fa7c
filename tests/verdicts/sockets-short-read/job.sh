hosts 4
plan --num-workers 2 -- python3 star.py short
launch
