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
TEST_FILE = re.compile(r"^\s*#\[cfg\(test\)\]\s*\n\s*(?:pub )?mod (\w+);", re.MULTILINE)


def weigh(text):
    """The tokens of a text that are no comments, and the words of its comments."""
    tokens = [match.group(0) for match in TOKEN.finditer(text)]
    comments = [token for token in tokens if token.startswith(("//", "/*"))]
    return len(tokens) - len(comments), sum(len(comment.split()) for comment in comments)


def test_modules(path, text):
    """Where the modules are that a file has only for its tests, without the ending of a file's name."""
    folder = path.parent if path.name in ("lib.rs", "main.rs", "mod.rs") else path.with_suffix("")
    return {folder / name for name in TEST_FILE.findall(text)}


def main():
    root = Path(__file__).resolve().parent.parent
    code, tests, words = Counter(), Counter(), 0
    for top in ("common", "tools", "tests", "fuzz"):
        texts = {path: path.read_text(encoding="utf-8") for path in root.joinpath(top).rglob("*.rs")}
        only_tests = set().union(*(test_modules(path, text) for path, text in texts.items()))
        for path, text in texts.items():
            below = path.relative_to(root).parts
            crate = "/".join(below[:2]) if top in ("common", "tools") else top
            begin = UNIT_TESTS.search(text)
            is_test = top == crate or below[2] == "tests" or not only_tests.isdisjoint([path.with_suffix(""), *path.parents])
            end = 0 if is_test else begin.start() if begin else len(text)
            of_code, of_comments = weigh(text[:end])
            code[crate] += of_code
            tests[crate] += weigh(text[end:])[0]
            words += of_comments
    if sys.argv[1:] != ["sum"]:
        for crate, count in code.most_common():
            print(f"{crate:20} code {count:7}  tests {tests[crate]:7}")
    print(f"weight: {sum(code.values())} tokens of code, {sum(tests.values())} of tests; {words} words of comments in code")


main()
