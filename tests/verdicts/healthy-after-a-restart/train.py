import os

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if attempt == 0 and os.environ["RANK"] == "1":
    raise ConnectionError("object store: 503 Slow Down")
print("rank", os.environ["RANK"], "is done")
