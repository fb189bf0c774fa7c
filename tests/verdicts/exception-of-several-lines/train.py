import os
import time


def check(config):
    problems = [f"  {name}: {text}" for name, text in config.items() if text]
    if problems:
        raise ValueError("2 problems in the configuration:\n" + "\n".join(problems) + "\nsee docs/config.md")


time.sleep(0.3)
if os.environ["RANK"] == "2":
    check({"fanout": "has 2 numbers, num_layers is 3", "lr": "", "sampler": "no such sampler: labour2"})
time.sleep(30)
