import os
import time

for step in range(6):
    loss = float("nan") if step in (1, 2) else 1 / (step + 1)
    note = " Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 32768.0" if loss != loss else ""
    print(f"rank {os.environ['RANK']} step {step}: loss {loss:.3f}{note}")
    time.sleep(0.2)
