import os

def train(rank)
    print(rank)

train(os.environ["RANK"])
