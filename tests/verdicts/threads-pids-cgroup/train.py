import os
import threading
import time

rank = int(os.environ["RANK"])
print("rank", rank, "starts its readers")
time.sleep(0.5)
for number in range(4 if rank == 0 else 200):
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
time.sleep(20)
