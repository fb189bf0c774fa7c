import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.01)
print(parser.parse_args())
