import os
import socket
import time

time.sleep(0.3)
if os.environ["RANK"] == "1":
    socket.create_connection(("metrics.internal", 9091), timeout=5)
time.sleep(30)
