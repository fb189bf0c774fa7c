#!/usr/bin/env python3
"""How much there is to read, whatever its layout: tokens of Rust without comments, of common and tools apart from their tests.

  weight.py       a line for each crate, the longest first, and the sum
  weight.py sum   the sum alone, for `make check`; it is a figure, not a limit
"""

import re
import sys
from collections import Counter
from pathlib import Path

# Comments and literals whole, words, and of the rest each operator.
TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/"""
    r"""|b?r(?P<hashes>\#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'"""
    r"""|'[A-Za-z_]\w*|[A-Za-z_]\w*|\d[\w.]*"""
    r"""|::|->|=>|&&|\|\||[<>=!+\-*/%&|^]=|\.\.=?|\S""",
    re.DOTALL,
)
UNIT_TESTS = re.compile(r"^\s*#\[cfg\(test\)\]\s*\n\s*(?:pub )?mod \w+ \{", re.MULTILINE)


def weigh(text):
    """The tokens of a text that are no comments, and the words of its comments."""
    tokens = [match.group(0) for match in TOKEN.finditer(text)]
    comments = [token for token in tokens if token.startswith(("//", "/*"))]
    return len(tokens) - len(comments), sum(len(comment.split()) for comment in comments)


def main():
    root = Path(__file__).resolve().parent.parent
    code, tests, words = Counter(), Counter(), 0
    for top in ("common", "tools", "tests", "fuzz"):
        for path in root.joinpath(top).rglob("*.rs"):
            text, below = path.read_text(encoding="utf-8"), path.relative_to(root).parts
            crate = "/".join(below[:2]) if top in ("common", "tools") else top
            begin = UNIT_TESTS.search(text)
            end = 0 if top == crate or "tests" in below[2:] or below[-1] == "tests.rs" else begin.start() if begin else len(text)
            of_code, of_comments = weigh(text[:end])
            code[crate] += of_code
            tests[crate] += weigh(text[end:])[0]
            words += of_comments
    if sys.argv[1:] != ["sum"]:
        for crate, count in code.most_common():
            print(f"{crate:20} code {count:7}  tests {tests[crate]:7}")
    print(f"weight: {sum(code.values())} tokens of code, {sum(tests.values())} of tests; {words} words of comments in code")


main()
