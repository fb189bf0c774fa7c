import os
import queue
import threading
import time
from multiprocessing.managers import BaseManager


class Samples(BaseManager):
    pass


rank = int(os.environ["RANK"])
address = ("10.0.0.1", 7100)
if rank == 0:
    waiting = queue.Queue()
    Samples.register("samples", callable=lambda: waiting)
    server = Samples(address, authkey=b"gnn").get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for number in range(5):
        waiting.put(number)
    time.sleep(3)
    raise LookupError("edge type 'cites' is not in the schema")
Samples.register("samples")
time.sleep(1)
client = Samples(address, authkey=b"gnn")
client.connect()
samples = client.samples()
while True:
    print("sample", samples.get())
