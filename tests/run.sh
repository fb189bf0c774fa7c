#!/bin/bash
# Runs the tests: all, or those whose names contain one of the arguments; --fast those that start no hosts, need no DGL and do not
# take seconds each. With cargo-nextest where it is there, which ends with one line about all of them; otherwise with cargo test,
# whose many lines are added up here.
set -euo pipefail

if [ "${1:-}" = --fast ]; then
    shift
    export DGL_TOOLS_TEST_FAST=1 # see takes_seconds() of tests/support
    nextest=(--profile fast)
    skipped=(--skip real_hosts --skip real_dgl)
    threads=$(nproc)
else
    nextest=() skipped=()
    threads=4 # tests wait more than they compute; few of them may have hosts at a time, see Cluster in tests/support
fi
if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --workspace --locked --no-fail-fast "${nextest[@]}" "$@"
fi
cargo test --workspace --locked --no-fail-fast --lib --bins --tests -- --test-threads "$threads" "${skipped[@]}" "$@" |
    awk '{ print; fflush() }
         /^test result: / { passed += $4; failed += $6; skipped += $8 }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
