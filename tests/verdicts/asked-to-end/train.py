import os
import signal
import subprocess
import sys
import time

rank = int(os.environ["RANK"])


def stop(number, frame):
    print(f"received SIGTERM at step {step}, saving a checkpoint", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, stop)
with open(f"{rank}.pid", "w") as file:
    print(os.getpid(), file=file)
if rank == 0:
    subprocess.Popen(["sh", "-c", "sleep 4; kill -TERM $(cat 0.pid 1.pid)"], start_new_session=True)
for step in range(1000):
    if step % 10 == 0:
        print("step", step, flush=True)
    time.sleep(0.1)
