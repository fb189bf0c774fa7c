"""An HTTP server for tests of what is fetched.

    http_server.py FOLDER ADDRESS PORT_FILE

Serves the files of a directory and writes its port to a file. Files beside that directory say how it behaves, from one request to the next:
`break`: it breaks off in the middle of each large file; `slow`: it waits there for ten minutes; `token`: the bearer token that it asks for."""

import http.server
import os
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        beside = lambda name: os.path.join(os.path.dirname(folder), name)
        if os.path.exists(beside("token")):
            with open(beside("token")) as token:
                if self.headers.get("Authorization") != "Bearer " + token.read().strip():
                    return self.send_error(403)
        path = os.path.join(folder, self.path.lstrip("/"))
        if not os.path.isfile(path):
            return self.send_error(404)
        size = os.path.getsize(path)
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        is_large = size > 65536
        breaks = is_large and os.path.exists(beside("break"))
        left = size // 2 if breaks else size
        with open(path, "rb") as file:
            while left:
                block = file.read(min(left, 65536))
                self.wfile.write(block)
                left -= len(block)
                if is_large and os.path.exists(beside("slow")) and left <= size // 2:
                    time.sleep(600)
        if breaks:
            self.close_connection = True

    def log_message(self, *_):
        pass


folder, address, port_file = sys.argv[1:]
folder = os.path.abspath(folder)
server = http.server.ThreadingHTTPServer((address, 0), Handler)
with open(port_file + ".new", "w") as file:
    print(server.server_address[1], file=file)
os.rename(port_file + ".new", port_file)
server.serve_forever()
