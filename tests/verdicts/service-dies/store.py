import socket
import threading
import time

server = socket.create_server(("10.0.0.1", 7300))


def serve(client):
    while True:
        client.recv(3)
        client.sendall(b"ok")


for number in range(2):
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
time.sleep(1)
raise OSError(5, "Input/output error", "/srv/job/data/features.bin")
