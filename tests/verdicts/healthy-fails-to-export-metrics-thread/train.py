import threading
import time


def export():
    time.sleep(0.5)
    raise TimeoutError("metrics server did not answer")


threading.Thread(target=export, name="metrics", daemon=True).start()
for epoch in range(4):
    print("epoch", epoch, "loss", round(1 / (epoch + 1), 2))
    time.sleep(0.5)
