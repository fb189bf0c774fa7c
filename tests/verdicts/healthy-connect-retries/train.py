import os
import socket
import time
import traceback

rank = int(os.environ["RANK"])
if rank == 0:
    time.sleep(2)
    with socket.create_server(("10.0.0.1", 7077)) as server:
        server.accept()[0].send(b"go")
else:
    for attempt in range(20):
        try:
            with socket.create_connection(("10.0.0.1", 7077), timeout=5) as client:
                print("rank", rank, "was told to", client.recv(2).decode())
            break
        except ConnectionRefusedError:
            traceback.print_exc(limit=0)
            print(f"attempt {attempt} failed, trying again")
            time.sleep(0.5)
