#!/bin/bash
# Runs tests with cargo-nextest, which starts each in a process and in namespaces of its own (tests/alone.sh), and ends with one line about
# all of them, below which it says what was skipped, and why. Installs cargo-nextest if it is missing.
# Usage: run.sh [--fast | --long] [ARG...]
#   --fast   only tests that start no hosts, need no DGL and do not take seconds each
#   --long   one after the other, with their output and without a time limit
#   ARG      a part of the names of tests, or an option of cargo nextest run
set -euo pipefail

if ! cargo nextest --version >/dev/null 2>&1; then
    echo 'run.sh: building cargo-nextest, which takes minutes, once' >&2
    # A version that Rust 1.88 builds, without its updater and without optimization, which it does not need here.
    CARGO_NET_RETRY=5 cargo install --quiet --locked --debug --no-default-features --features default-no-update cargo-nextest@0.9.111
fi
# Tests start python3 often, and a shim in its place, such as pyenv's, takes several times as long as Python itself.
if python=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))' 2>/dev/null); then PATH=$python:$PATH; fi
case "${1:-}" in
    --fast)
        shift
        set -- --profile fast --workspace "$@"
        ;;
    --long)
        shift
        set -- --profile long --no-capture -p dgl-tools-tests "$@"
        ;;
    *) set -- --workspace "$@" ;;
esac
# what is meant for the make or the Pythons of whoever runs the tests changes those that tests run
unset MAKEFLAGS MFLAGS MAKELEVEL PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE
TESTS_SKIPPED=$(mktemp)
export TESTS_SKIPPED
trap 'rm -f "$TESTS_SKIPPED"' EXIT
status=0
cargo nextest run --locked --no-fail-fast "$@" || status=$?
sort "$TESTS_SKIPPED" | uniq -c | while read -r count why; do echo "     Skipped $count: $why"; done >&2
exit "$status"
