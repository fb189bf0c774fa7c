# shellcheck shell=bash
# How each measurement begins; sourced by bash, from the directory of measurements, before anything else is done. It names the machine, puts
# the tools that are measured first in PATH (those in BIN; without it of a release build, or of PROFILE), and goes to a directory of this
# run's own.
#   root     the repository
#   target   cargo's directory
#   bin      the directory of the tools that are measured
#   work     the directory of this run; it lies in none that every host has for itself
#   cluster  what makes test hosts; they end with the run
#   at_end   a function that a measurement may define: what else is to end with it
set -euo pipefail
[ -z "${BENCH_JSON:-}" ] || BENCH_JSON=$(readlink -m "$BENCH_JSON")
for folder in DGL_TOOLS OLD BIN; do
    [ -n "${!folder:-}" ] || continue
    printf -v "$folder" %s "$(readlink -m "${!folder}")"
    [ -d "${!folder}" ] || { echo "$(basename "$0"): $folder=${!folder}: there is no such directory" >&2; exit 2; }
done
export BENCH_JSON=${BENCH_JSON:-}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=$(cd "$root" && readlink -m "${CARGO_TARGET_DIR:-target}")
bin=${BIN:-$target/${PROFILE:-release}}
[ -x "$bin/ipconf-check" ] || { echo "$(basename "$0"): there are no tools in $bin; make build makes them" >&2; exit 2; }
PATH=$bin:$PATH:/usr/sbin
cluster=$root/tools/host-lab/host-lab
work=$(mktemp -d /var/tmp/dgl-tools-bench-XXXXXX)
export LAB=$work/lab # also where a user has hosts of his own in LAB
finish() {
    ! declare -F at_end >/dev/null || at_end || true
    [ ! -d "$LAB" ] || "$cluster" down || true
    rm -rf "$work"
}
trap finish EXIT
"$root/tests/bench/machine.sh"
cd "$work"
# shellcheck source=tests/bench/table.sh
. "$root/tests/bench/table.sh"
: >figures
