import os, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))


def connect():
    if rank == 0:
        listener = socket.create_server(address, backlog=64)
        return [listener.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(address)]
        except ConnectionRefusedError:
            time.sleep(0.1)


def receive(peer):
    data = b""
    while len(data) < 8:
        part = peer.recv(8 - len(data))
        if not part and mode != "short":
            raise ConnectionError("peer went away")
        if not part:
            break
        data += part
    return struct.unpack("d", data)[0]


def load(batch):
    return [float(value) for value in batch.split()]


mode = sys.argv[1]
peers = connect()
for epoch in range(3):
    total = sum(load("1 2 3"))
    if epoch == 1 and rank == 5:
        if mode == "raise":
            load("3.0 oops")
        if mode in ("exit", "short"):
            sys.exit(3)
        if mode == "hang":
            time.sleep(600)
    if rank == 0:
        total += sum(receive(peer) for peer in peers)
        time.sleep(0.05)
        for peer in peers:
            peer.sendall(struct.pack("d", total))
    else:
        peers[0].sendall(struct.pack("d", total))
        total = receive(peers[0])
    print(f"epoch {epoch} sum {total}", flush=True)
    time.sleep(0.3)
