import signal
import time


def stop(number, frame):
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, stop)
print("store: listening on 10.0.0.1:7001")
try:
    time.sleep(3600)
finally:
    print("store: 2 clients are gone, 0 requests are lost")
