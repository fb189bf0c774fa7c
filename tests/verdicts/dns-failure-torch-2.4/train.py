import os
import sys
import time
from datetime import timedelta

import torch.distributed as dist

os.environ["MASTER_ADDR"] = "node0.cluster"
if os.environ["RANK"] == "0":
    time.sleep(50)
dist.init_process_group("gloo", timeout=timedelta(seconds=8))
