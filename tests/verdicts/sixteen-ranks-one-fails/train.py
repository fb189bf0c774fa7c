import os
import socket
import sys
import time
import traceback

rank = int(os.environ["RANK"])
if rank == 5:
    server = socket.create_server(("10.0.0.1", 7200), backlog=20)
    clients = [server.accept()[0] for _ in range(15)]
    time.sleep(0.5)
    try:
        raise ArithmeticError("weights of layer 2 are not finite")
    except ArithmeticError:
        traceback.print_exc()
    for client in clients:
        client.close()
    time.sleep(3)
    sys.exit(1)
while True:
    try:
        peer = socket.create_connection(("10.0.0.1", 7200))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
if not peer.recv(1):
    raise ConnectionResetError(104, "Connection reset by peer")
