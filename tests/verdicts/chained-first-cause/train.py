import json
import os
import time


class TrainingError(RuntimeError):
    pass


def read_config(path):
    with open(path) as file:
        return json.load(file)


def build(rank):
    try:
        return read_config(f"data/part{rank}/metadata.json")
    except OSError as error:
        raise KeyError("no metadata") from error


def main():
    rank = int(os.environ["RANK"])
    os.makedirs(f"data/part{rank}", exist_ok=True)
    if rank != 3:
        with open(f"data/part{rank}/metadata.json", "w") as file:
            file.write("{}")
    try:
        build(rank)
    except KeyError as error:
        raise TrainingError("training failed") from error
    time.sleep(30)


main()
