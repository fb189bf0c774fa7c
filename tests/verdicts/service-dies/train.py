import socket
import sys
import time

time.sleep(1)
with socket.create_connection((sys.argv[1], 7300)) as store:
    for step in range(100):
        store.sendall(b"get")
        if not store.recv(10):
            raise EOFError("the store closed the connection")
        time.sleep(0.1)
