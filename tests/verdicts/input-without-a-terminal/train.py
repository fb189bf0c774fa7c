import os


def login():
    return input("wandb: (1) Create an account (2) Use an existing one. Enter your choice: ")


print("rank", os.environ["RANK"], login())
