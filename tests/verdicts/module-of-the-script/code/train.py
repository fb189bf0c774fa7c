import argparse
import os

from sage_model import DistSAGE

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", type=int, default=16)
args = parser.parse_args()
print(os.environ["RANK"], DistSAGE(args.hidden))
