#!/usr/bin/env python3
"""What torchrun itself says: "Root Cause (first observed failure)" of its table of failures.

  torchrun.py DIRECTORY     the logs of one job; of several tables, the one with the earliest time counts
"""

import re
import sys
from pathlib import Path

ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):\s*\n[^\n]*\[0\]:\s*\n"
    r"[^\n]*time\s*: (?P<time>\S+)\n[^\n]*host\s*: (?P<host>\S+)\n[^\n]*rank\s*: (?P<rank>\d+)[^\n]*\n"
    r"[^\n]*exitcode\s*: (?P<code>-?\d+)[^\n]*\n[^\n]*error_file[^\n]*\n[^\n]*traceback\s*: (?P<traceback>[^\n]*)"
)


def main(directory):
    tables = []
    for path in sorted(Path(directory).rglob("*")):
        if path.is_file():
            tables += ROOT_CAUSE.finditer(path.read_text(errors="replace"))
    if not tables:
        print("The job may have ended: nothing in its logs says how or why.")
        return 1
    first = min(tables, key=lambda table: table["time"])
    print(f"The job failed: rank {first['rank']} on {first['host']} exited; exitcode : {first['code']}; {first['traceback']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
