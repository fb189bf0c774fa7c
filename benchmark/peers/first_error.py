#!/usr/bin/env python3
"""What people do without a tool: search the logs for an error and believe the first line found.

  first_error.py DIRECTORY     the logs of one job, file by file in the order of their names
"""

import re
import sys
from pathlib import Path

ERROR = re.compile(r"\b\w*(?:Error|Exception)\b: |\berror: |\bKilled\b|\bSIG[A-Z]+\b|Segmentation fault")
RANK = re.compile(r"\[?[Rr]ank[ :]?(\d+)|\[default(\d+)\]|^\[1,(\d+)\]<|^(\d+): |\btask (\d+)|local_rank: (\d+)")


def main(directory):
    for path in sorted(Path(directory).rglob("*")):
        if not path.is_file():
            continue
        for line in path.read_text(errors="replace").splitlines():
            if ERROR.search(line):
                numbers = [number for number in (RANK.search(line) or re.match("", "")).groups() if number]
                who = f"rank {numbers[0]}" if numbers else "a process"
                print(f"The job failed: {who} raised {line.strip()}")
                return 0
    print("The job may have ended: nothing in its logs says how or why.")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
