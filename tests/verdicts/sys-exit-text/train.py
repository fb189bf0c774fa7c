import argparse
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--fanout")
parser.add_argument("--layers", type=int)
args = parser.parse_args()
print("rank", os.environ["RANK"], args)
if os.environ["RANK"] == "2":
    sys.exit("--fanout has 2 numbers, but --layers is 3")
time.sleep(30)
