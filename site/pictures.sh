#!/bin/bash
# Takes the pictures of the site again, from real jobs on four hosts of host-lab: terminals as SVG, the report as PNG. It needs the tools
# in target/debug, tmux, chromium, and a python3 with torch on the hosts' PATH; dgl.md's report also wants DGL.
#   pictures.sh         all
#   pictures.sh NAME..  these: torch runs failure stall stacks report
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=$(realpath "${CARGO_TARGET_DIR:-target}")
pictures=$root/site/pictures
host_lab=$root/tools/host-lab/host-lab
export PATH=$target/debug:$PATH

work=$(mktemp -d /var/tmp/dgl-tools-pictures-XXXXXX) # not in /tmp, because every host has its own
export LAB=$work/lab
end() {
    tmux -L "${work##*/}" kill-server 2>/dev/null || true
    "$host_lab" down || true
    rm -rf "$work"
}
trap end EXIT

rich=$target/pictures-venv
[ -d "$rich" ] || { python3 -m venv "$rich" && "$rich/bin/pip" install --quiet rich==14.2.0; }

# A text with colours as an SVG that loads nothing, in 100 columns: the terminal is wider, so that lines are broken between words here.
terminal() { # NAME TITLE; the text comes from stdin
    "$rich/bin/python" -c '
import re, sys
from rich.console import Console
from rich.text import Text
path, title = sys.argv[1:]
console = Console(record=True, width=100, file=open("/dev/null", "w"))
console.print(Text.from_ansi(sys.stdin.read().rstrip()))
svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.S)
open(path, "w").write(svg.replace("Fira Code", "DejaVu Sans Mono"))
' "$pictures/$1.svg" "$2"
}

# Runs a script on host 1 in a terminal, until it has ended or for so many seconds, and prints what is on the screen then.
screen() { # SECONDS SCRIPT
    rm -f "$work/done"
    printf 'cd %q\n%s\ntouch %q\nsleep 1000\n' "$work" "$2" "$work/done" >"$work/script"
    tmux -L "${work##*/}" -f /dev/null new-session -d -x 200 -y "${rows:-30}" "LAB='$LAB' PATH='$PATH' '$host_lab' exec 1 bash '$work/script'"
    for _ in $(seq "$1"); do
        [ ! -e "$work/done" ] || break
        sleep 1
    done
    sleep 1
    # joined: a line that the terminal has broken is one here
    tmux -L "${work##*/}" capture-pane -peJ | sed 's/ *$//'
    tmux -L "${work##*/}" kill-server
}

# Shows a command as it was typed, then runs it.
typed() { # COMMAND; prints shell text
    printf 'printf %%s\\\\n %q\n%s\n' "$(sed '1s/^/$ /; 2,$s/^/  /' <<<"$1")" "$1"
}

on_host() { (cd "$work" && "$host_lab" exec 1 bash -c "$1"); }

wants() { [ ${#names[@]} = 0 ] || [[ " ${names[*]} " = *" $1 "* ]]; }
names=("$@")

"$host_lab" up 4 --quiet >"$work/ip_config.txt"
mkdir "$work/code"
cp examples/torch/code/*.py "$work/code"
cp tests/dgl/ddp.py "$work/code/faulty.py"
on_host 'python3 code/data.py'

copy='ipconf-check ip_config.txt | host-probe |
  part-map --workspace /srv/job --script-folder code --extra data.csv |
  part-push > pushed.jsonl'
run='dgl-env --role worker --num-workers 2 -- python3 code/ddp.py < pushed.jsonl |
  dgl-spawn --log-dir logs'

if wants torch; then
    on_host "$copy" 2>/dev/null
    screen 120 "$(typed "$run")" | terminal torch 'eight ranks on four hosts'
fi
if wants runs; then
    shown=$(typed "${run/--log-dir/--job demo --log-dir} > run.jsonl 2> run.log; echo \$?" && typed 'dgl-why --brief logs/run.jsonl')
    on_host "$copy" 2>/dev/null
    rows=26 screen 240 "$shown
echo
{ sed -i '1003s/.*/oops/' data.csv; $copy; } 2>/dev/null
$shown" | terminal runs 'a run that succeeds, and one that fails'
fi
if wants failure; then
    on_host "sed -i '1003s/.*/oops/' data.csv; $copy" 2>/dev/null
    screen 120 "$(typed "$run")
$(typed 'dgl-why --brief logs/run.jsonl')" | terminal failure 'one rank fails'
fi
if wants stall || wants stacks; then
    on_host "$copy" 2>/dev/null
    hang='dgl-env --role worker --num-workers 2 --env FAULT=loader --env FAULT_RANK=5 -- \
    python3 code/faulty.py < pushed.jsonl |
  dgl-spawn --job hang --stall-timeout 20s:end'
    screen 180 "$(typed "$hang")" | terminal stall 'a rank that the others wait for'
fi
if wants stacks; then
    on_host 'dgl-env --role worker --num-workers 2 --env FAULT=loader --env FAULT_RANK=5 -- \
        python3 code/faulty.py < pushed.jsonl | dgl-spawn --job hang >/dev/null' 2>/dev/null &
    sleep 25
    rows=44 screen 30 "$(typed 'ipconf-check ip_config.txt | dgl-stacks --job hang')" | terminal stacks 'where every rank is'
    on_host 'ipconf-check ip_config.txt | dgl-reap --job hang >/dev/null'
    wait
fi
if wants report; then
    python=$(tests/dgl/python.sh)
    (cd "$work" && "$python" "$root/tests/dgl/partition.py" --out out --num-parts 4 2>/dev/null)
    cp tests/dgl/train.py "$work/code"
    on_host "ipconf-check ip_config.txt | host-probe --python '$python' |
        part-map --part-config out/g.json --workspace /srv/dgl --script-folder code | part-push |
        dgl-env --num-trainers 2 --num-samplers 1 -- '$python' code/train.py --ip-config ip_config.txt \
            --part-config data/g.json | dgl-spawn --log-dir logs >/dev/null
        dgl-report logs/run.jsonl > run.html"
    chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
        --disable-component-update --disable-sync --user-data-dir="$work/chromium" --hide-scrollbars \
        --window-size=1000,1100 --screenshot="$pictures/report.png" "file://$work/run.html" 2>/dev/null
fi
