#!/usr/bin/env python3
"""Scores a tool that says why a job failed: README.md explains the cases and how an answer is read.

  score.py                                all cases with dgl-why, and of them the sealed ones
  score.py --sealed                       only the sealed ones
  score.py --tool 'CMD {}'                another tool; {} stands for the directory of a case's logs
  score.py NAME ...                       these cases
  --answers DIR                           keep each answer in DIR/NAME.txt
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import generate

HERE = Path(__file__).resolve().parent
SECONDS = 60  # a tool that needs more for 200 KB of logs has no answer

HEADLINE = re.compile(r"^(?:The job failed|The job may have ended|The job waits|Also|Warning): ")
# Where a statement stops to say whom it is about, and begins to quote or to explain.
SUBJECT_END = re.compile(r" raised |: |; |, which | because | it wrote ")
RANKS = re.compile(r"\b(?:ranks?|tasks?|processes|process|trainers?|workers?|clients?) (\d+(?:(?:, | and |, and |-)\d+)*)\b")
ALL_RANKS = re.compile(r"\b(?:all|each|every)(?: of)?(?: the)?(?: \d+)? (?:ranks?|tasks?|processes|workers?|trainers?)\b")
ABSOLVED = re.compile(r"need not be to blame|not to blame|only says that another|only victims?\b")
UNKNOWN = re.compile(r"nothing in (?:its|the) logs? says|show neither how|do(?:es)? not say (?:how|why)|unknown cause", re.IGNORECASE)
FAILED = re.compile(r"\b(?:job|training) failed\b|^Also: ", re.IGNORECASE)


class Answer:
    """What a tool printed, in parts: statements, each with the lines that it quotes, and the advice."""

    def __init__(self, text):
        self.statements = []  # (the statement, what it quotes)
        advice = []
        part = None
        for line in text.splitlines():
            if not line.strip():
                continue
            if not line[0].isspace():
                self.statements.append((line, []))
                part = None
                continue
            words = line.strip()
            if words.startswith("shown by:"):
                part = "quotes"
            elif re.match(r"[a-z ]+: ", words) and len(line) - len(line.lstrip()) <= 2:
                part = "advice" if words.startswith("fix:") else None
            if part == "quotes" and self.statements:
                self.statements[-1][1].append(words)
            elif part == "advice":
                advice.append(words)
        self.advice = "\n".join(advice)
        self.knows = bool(self.statements) and not UNKNOWN.search(self.statements[0][0])

    def reason(self):
        """The first statement and its quotes."""
        statement, quotes = self.statements[0]
        return "\n".join([statement, *quotes])


def named(statement, case):
    """Whom a statement names: ranks, and those hosts and pids that the truth knows."""
    if ABSOLVED.search(statement):
        return set()
    subject = SUBJECT_END.split(HEADLINE.sub("", statement), maxsplit=1)[0]
    names = {name for name in (case["who"] or []) + case["not_who"] if isinstance(name, str) and contains(subject, name)}
    for numbers in RANKS.findall(subject):
        for part in re.split(r", and |, | and ", numbers):
            first, _, last = part.partition("-")
            names.update(range(int(first), int(last or first) + 1))
    if ALL_RANKS.search(subject):
        names.update(name for name in (case["who"] or []) + case["not_who"] if isinstance(name, int))
    return names


def contains(text, name):
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w]|\.\d)", text) is not None


def judge(case, text):
    """{what is scored: whether it is right}; a key is absent where the case has no truth for it."""
    answer = Answer(text)
    accused = [named(statement, case) for statement, _ in answer.statements]
    first = accused[0] if accused and answer.knows else set()
    if case["kind"] == "healthy":
        claims = any(FAILED.search(statement) for statement, _ in answer.statements)
        return {"healthy": not claims, "wrong": claims and any(accused), "wrong beside": False}
    not_who = set(case["not_who"])
    result = {"wrong": bool(first & not_who), "wrong beside": any(names & not_who for names in accused[1:])}
    if case["who"] is None:
        result["who"] = not any(isinstance(name, int) for name in first)
    else:
        result["who"] = bool(first & set(case["who"])) and not first & not_who
    if case["why"]:
        result["why"] = answer.knows and any(re.search(pattern, answer.reason()) for pattern in case["why"])
    else:
        result["why"] = not answer.knows  # the logs say nothing, and neither must the tool
    if case["fix"]:
        result["fix"] = answer.knows and all(re.search(pattern, answer.advice) for pattern in case["fix"])
    return result


def ask(tool, logs):
    command = [word.replace("{}", str(logs)) for word in shlex.split(tool)]
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, errors="replace").stdout
    except subprocess.TimeoutExpired:
        return ""


def logs_of(case):
    ready = HERE / "cases" / case["id"] / "logs"
    return ready if ready.is_dir() else HERE / "logs" / case["id"]


def line_of(case, result):
    words = []
    for key in ("who", "why", "fix", "healthy"):
        if key in result:
            words.append(f"{key} {'yes' if result[key] else 'NO '}")
    if result["wrong"]:
        words.append("ACCUSES WRONGLY")
    elif result["wrong beside"]:
        words.append("accuses wrongly beside")
    return f"{case['id']:40} {'sealed' if case['sealed'] else '      '} {'  '.join(words)}"


def table(title, rows):
    """One line of figures: right of all that have the truth."""
    figures = []
    for key in ("who", "why", "fix", "healthy"):
        judged = [result[key] for _, result in rows if key in result]
        figures.append(f"{sum(judged):4} of {len(judged):3}")
    whole = [all(result[key] for key in ("who", "why", "fix") if key in result) for case, result in rows if case["kind"] == "end"]
    wrong = sum(result["wrong"] for _, result in rows)
    beside = sum(result["wrong beside"] for _, result in rows)
    print(f"{title:22} {'  '.join(figures)}  {sum(whole):4} of {len(whole):3} {wrong:6} {beside:7}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tool", default="dgl-why {}")
    parser.add_argument("--sealed", action="store_true")
    parser.add_argument("--answers", type=Path)
    arguments = parser.parse_args()

    cases = [json.loads(path.read_text()) for path in sorted(HERE.glob("cases/*/case.json"))]
    cases = [case for case in cases if (not arguments.names or case["id"] in arguments.names) and (case["sealed"] or not arguments.sealed)]
    if not cases:
        sys.exit("score.py: no such case")
    generate.main([case["id"] for case in cases])

    rows = []
    for case in cases:
        text = ask(arguments.tool, logs_of(case))
        if arguments.answers:
            arguments.answers.mkdir(parents=True, exist_ok=True)
            (arguments.answers / f"{case['id']}.txt").write_text(text)
        rows.append((case, judge(case, text)))
        print(line_of(*rows[-1]))

    print(f"\n{'':22} {'who':^11}  {'why':^11}  {'fix':^11}  {'healthy':^11}  {'all three':^11} {'wrong':>6} {'beside':>7}")
    groups = defaultdict(list)
    for case, result in rows:
        groups[case["stack"].split("/")[-1]].append((case, result))
    for name in sorted(groups):
        table(name, groups[name])
    print()
    table("all", rows)
    table("of them sealed", [row for row in rows if row[0]["sealed"]])


if __name__ == "__main__":
    main()
