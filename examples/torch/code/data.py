"""Writes data.csv: x and 2 x + 1 with some noise, 4000 rows."""

import random

random.seed(7)
with open("data.csv", "w") as file:
    for _ in range(4000):
        x = random.random()
        file.write(f"{x:.4f},{2 * x + 1 + random.gauss(0, 0.05):.4f}\n")
