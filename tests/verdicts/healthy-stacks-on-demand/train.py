import faulthandler
import os
import time

faulthandler.dump_traceback_later(1, repeat=False)


def read_shard():
    time.sleep(2.5)


read_shard()
print("rank", os.environ["RANK"], "is done")
