import sys
import time

for step in range(12):
    sys.stderr.write(f"\rEpoch 0: {step * 100 // 12:3d}%|{'#' * step:12s}| {step}/12 errors=0 failed=0")
    sys.stderr.flush()
    time.sleep(0.3)
sys.stderr.write("\n")
