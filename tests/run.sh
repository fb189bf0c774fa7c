#!/bin/bash
# Runs the tests: all, or those whose names contain one of the arguments. With cargo-nextest where it is there, which ends with one
# line about all of them; otherwise with cargo test, whose many lines are added up here.
set -euo pipefail

if cargo nextest --version >/dev/null 2>&1; then
    exec cargo nextest run --workspace --locked --no-fail-fast "$@"
fi
# Two at a time: a test that starts hosts keeps a dozen processes busy.
cargo test --workspace --locked --no-fail-fast --lib --bins --tests -- --test-threads 2 "$@" |
    awk '{ print; fflush() }
         /^test result: / { passed += $4; failed += $6; skipped += $8 }
         END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }'
