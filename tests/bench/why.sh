#!/bin/bash
# How long dgl-why takes for logs of other launchers, and how much memory: 1 GB of lines, and 100 MB of progress bars and colours, each at
# most three times as long as `rg -c -i 'error|traceback'` and 200 MB. Without rg, it is compared with grep, without a goal. Prints numbers,
# and a JSON object a line into the file BENCH_JSON where that is set; fails at nothing: a busy machine proves nothing.
# shellcheck source=tests/bench/begin.sh
. "$(dirname "$0")/begin.sh"

failure() {
    printf '%s\n' '[rank3]: Traceback (most recent call last):' '[rank3]:   File "/srv/job/train.py", line 3, in train' \
        '[rank3]: ValueError: loss is nan'
}
lines() { # BYTES
    awk -v bytes="$1" 'BEGIN {
        while (written < bytes) {
            line = sprintf("[2026-01-01 10:%02d:%02d,123] [INFO] [train.py:%d] step %d loss %.6f lr 0.0003 samples/s %d", n / 60 % 60, n % 60, n % 400, n, 1 / (n + 1), n % 9999)
            if (n % 20000 == 0) line = "[E1126 07:00:00.1 socket.cpp:5] an ERROR that harms nothing"
            print line
            written += length(line) + 1
            n++
        }
    }'
    failure
}
bars() { # BYTES
    awk -v bytes="$1" 'BEGIN {
        while (written < bytes) {
            line = sprintf("\r\033[32mepoch %d\033[0m: %3d%%|#####     | %d/1000 [00:01<00:09, 97.1it/s]", n / 1000, n / 10 % 100, n % 1000)
            printf "%s", line
            written += length(line)
            n++
        }
        print ""
    }'
    failure
}

if command -v rg >/dev/null; then search=(rg -c -i 'error|traceback') goal=0.33; else search=(grep -c -i -E 'error|traceback') goal=; fi
lines 1000000000 >lines.log
bars 100000000 >bars.log
header
for log in lines bars; do
    for _ in 1 2 3; do
        /usr/bin/time -f "search-$log %e %U" -a -o figures "${search[@]}" "$log.log" >/dev/null
        /usr/bin/time -f "why-$log %e %U %M" -a -o figures dgl-why --brief "$log.log" >said
        grep -q 'rank 3 raised ValueError: loss is nan' said || { echo "why.sh: dgl-why says: $(cat said)" >&2; exit 1; }
    done
    goal "dgl-why of $(stat -c %s "$log.log" | numfmt --to=si)B of $log, compared with ${search[0]}" "search-$log" "why-$log" "$goal"
    limit "  its memory" "$(awk -v kb="$(median "why-$log" 4)" 'BEGIN { print kb / 1000 }')" MB 200
done
