import os
import subprocess

rank = os.environ["RANK"]
if subprocess.run(["grep", "-q", "resume", "train.py.conf"]).returncode != 0:
    print("rank", rank, "has no checkpoint and begins anew")
killed = subprocess.Popen(["sleep", "100"])
killed.kill()
print("rank", rank, "ended its monitor with status", killed.wait())
