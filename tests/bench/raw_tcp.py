"""What one plain TCP connection carries: what copying is held against.

raw_tcp.py sink ADDRESS           takes all that comes to port 7000, and answers a byte at the end of each connection
raw_tcp.py source ADDRESS FILE    sends a file there; prints the seconds until it was connected, and from then to the answer
"""

import socket
import sys
import time

PORT = 7000


def sink(address):
    server = socket.create_server((address, PORT))
    while True:
        connection, _ = server.accept()
        while connection.recv(1 << 20):
            pass
        connection.sendall(b"y")
        connection.close()


def source(address, name):
    begun = time.monotonic()
    connection = socket.create_connection((address, PORT))
    connected = time.monotonic()
    with open(name, "rb") as file:
        connection.sendfile(file)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    print(connected - begun, time.monotonic() - connected)


if sys.argv[1] == "sink":
    sink(sys.argv[2])
else:
    source(sys.argv[2], sys.argv[3])
