import os


def load(path: str | None = None):
    return path


print("rank", os.environ["RANK"], load())
