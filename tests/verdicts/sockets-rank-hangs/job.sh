hosts 4
plan --num-workers 2 -- python3 star.py hang
launch --stall-timeout 6s:end
