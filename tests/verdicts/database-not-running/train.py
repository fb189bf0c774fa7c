import os
import socket
import time

time.sleep(0.5)
if os.environ["RANK"] == "0":
    socket.create_connection(("10.0.0.1", 6379), timeout=5)
time.sleep(30)
