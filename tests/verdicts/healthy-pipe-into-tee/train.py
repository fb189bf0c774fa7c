import os

print("rank", os.environ["RANK"], "accuracy 0.71, errors 0")
