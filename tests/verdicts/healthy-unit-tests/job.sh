plan --num-workers 1 -- python3 -m unittest -v tests_of_loader
launch
