# shellcheck shell=bash
# What measurements share; sourced by bash in a work directory. Figures are lines of `figures`: NAME SECONDS CPU_SECONDS. What they come to
# is a row of a table, and a line of $BENCH_JSON where that is set: medians, their ratio, and the goal it is held against.

tell() { [ -z "${BENCH_JSON:-}" ] || jq -cn "$@" >>"$BENCH_JSON"; }
header() { printf '%-60s %10s  %10s  %7s\n' "" other ours ratio; }

median() { # NAME [FIELD=2]
    awk -v name="$1" -v field="${2:-2}" '$1 == name { print $field }' figures | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# What two values come to, and what their ratio should be at least; without a goal it is only told.
compare() { # TEXT OTHER OURS UNIT [GOAL]
    awk -v text="$1" -v a="$2" -v b="$3" -v unit="$4" -v goal="${5:-}" 'BEGIN {
        r = a / b
        printf "%-60s %7.2f %-2s  %7.2f %-2s  %5.2f x", text, a, unit, b, unit, r
        if (goal != "") printf "  goal %5.2f  %s", goal, (r >= goal ? "met" : "MISSED")
        print "" }'
    # shellcheck disable=SC2016
    tell --arg what "$1" --arg a "$2" --arg b "$3" --arg unit "$4" --arg goal "${5:-}" '($a | tonumber) as $a | ($b | tonumber) as $b |
        {type: "measure", what: $what, other: $a, ours: $b, unit: $unit, ratio: ($a / $b * 1000 | round / 1000)} +
        if $goal == "" then {} else ($goal | tonumber) as $goal | {goal: $goal, met: ($a / $b >= $goal)} end'
}

goal() { # TEXT OTHER-NAME OUR-NAME [GOAL]: of their medians
    compare "$1" "$(median "$2")" "$(median "$3")" s "${4:-}"
}

# One value, which should not be more than the limit.
limit() { # TEXT VALUE UNIT [LIMIT]
    awk -v text="$1" -v v="$2" -v unit="$3" -v limit="${4:-}" 'BEGIN {
        printf "%-60s %10s  %7.2f %-2s  %7s", text, "", v, unit, ""
        if (limit != "") printf "  goal %5.2f  %s", limit, (v + 0 <= limit + 0 ? "met" : "MISSED")
        print "" }'
    # shellcheck disable=SC2016
    tell --arg what "$1" --arg v "$2" --arg unit "$3" --arg limit "${4:-}" '($v | tonumber) as $v | {type: "measure", what: $what, ours: $v, unit: $unit} +
        if $limit == "" then {} else ($limit | tonumber) as $limit | {goal: $limit, met: ($v <= $limit)} end'
}
