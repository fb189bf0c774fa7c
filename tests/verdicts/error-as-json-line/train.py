import json
import os
import time

rank = int(os.environ["RANK"])


def log(level, event, **fields):
    print(json.dumps({"level": level, "event": event, "rank": rank, **fields}), flush=True)


log("info", "start")
time.sleep(0.5)
if rank == 1:
    log("error", "cannot decode shard", shard=7, reason="bad magic b'PK'")
    log("info", "shutdown")
    os._exit(2)
time.sleep(30)
