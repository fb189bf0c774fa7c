import os
import socket
import time

LOST = "[../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:40166"
rank = int(os.environ["RANK"])
address = "127.0.0.1", 45671
if rank == 0:
    listener = socket.create_server(address)
    other, _ = listener.accept()
else:
    os.system("no-such-smi --list")
    for _ in range(100):
        try:
            other = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.1)
for step in range(8):
    print("step", step, flush=True)
    time.sleep(0.3)
if rank == 0:
    raise ValueError("loss is nan")
if not other.recv(1):
    raise RuntimeError(LOST)
