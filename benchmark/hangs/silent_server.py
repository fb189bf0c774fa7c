"""Rank 2 waits for the answer of a service outside the job that accepted its request; the others wait in a barrier of their own."""

import socket
import time

from ranks import RANK, Star, say


def ask_feature_service(server):
    with socket.create_connection(server.getsockname()) as connection:
        connection.sendall(b"GET /features/17 HTTP/1.0\r\n\r\n")
        return connection.recv(1 << 16)


def train(star):
    for step in range(1000):
        if RANK == 2 and step == 3:
            server = socket.create_server(("127.0.0.1", 0))  # the kernel accepts, nobody answers
            ask_feature_service(server)
        star.barrier()
        say(f"step {step}")
        time.sleep(0.2)


train(Star())
