import logging
import os
import sys
import time

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("loader")
log.info("reads metadata")
time.sleep(0.5)
if os.environ["RANK"] == "3":
    log.critical("partition 3 was made for 8 parts, the job has 4")
    log.info("closes its files")
    sys.exit(1)
time.sleep(30)
