import time

while True:
    print("store: 0 requests in the last 2 s", flush=True)
    time.sleep(2)
