#!/usr/bin/env python3
"""The log analysis of NVIDIA's resiliency extension, in its deterministic mode (without a language model).

  nvidia_resiliency.py DIRECTORY     the logs of one job, joined into one file because the analysis reads one

Needs Python 3.12 with nvidia-resiliency-ext 0.7.0 (pip install --no-deps), httpx and pydantic.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from nvidia_resiliency_ext.attribution.restart_agent import cli


def main(directory):
    texts = [path.read_text(errors="replace") for path in sorted(Path(directory).rglob("*")) if path.is_file()]
    log = "".join(texts)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as file:
        file.write(log)
        file.flush()
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            cli.main([file.name, "--disable-l1"])
    failure = json.loads(output.getvalue().splitlines()[-1])["primary_failure"]
    if failure is None:
        print("The job may have ended: nothing in its logs says how or why.")
        return 1
    who = f"rank {failure['rank']}" if failure["rank"] is not None else "a process"
    if failure["node"] is not None:
        who += f" on {failure['node']}"
    print(f"The job failed: {who} raised {failure['signature']} ({failure['failure_class']})")
    print(f"  shown by: {log.split(chr(10))[failure['line'] - 1].strip()}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
