import os
import socket
import sys
import time


def serve(port):
    while True:
        try:
            return socket.create_server(("10.0.0.1", port)), port
        except OSError as error:
            print(f"TensorBoard: {error}: port {port}, trying the next", file=sys.stderr)
            port += 1


server, port = serve(6006)
print("rank", os.environ["RANK"], "serves on port", port)
time.sleep(1.5)
