plan --num-workers 2 -- python3 train.py
# The agent of the second host and its processes stop, as if the machine had frozen.
(sleep 4
    frozen=$(pgrep --ns $$ --nslist net -f 'host-agent serve' | tail -1)
    kill -STOP $frozen $(pgrep -P $frozen)
    sleep 15
    kill -KILL $frozen $(pgrep -P $frozen)) &
launch --host-timeout 5s
wait
