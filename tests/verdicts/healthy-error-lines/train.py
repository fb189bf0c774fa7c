import logging
import os
import time

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
rank = os.environ["RANK"]
for epoch in range(3):
    logging.getLogger("metrics").error("push to http://10.0.0.9:9091 failed: timed out; metrics are dropped")
    logging.getLogger("train").info("epoch %d: loss 0.%d", epoch, 9 - epoch)
    time.sleep(0.3)
logging.getLogger("train").critical("best accuracy 0.71 on rank %s", rank)
