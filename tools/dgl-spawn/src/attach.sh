# Goes back to a detached job. Sent in front of it: `job` (its name), `address` (this host's), `follow` (Python). Says `none` where there is
# no such job, else what follow.py says.
# shellcheck disable=SC2154

detached=${HOME:-/nonexistent}/.local/state/dgl-tools/$job/$address
if [ ! -r "$detached/processes" ]; then
  echo none
  exit
fi
read -r python <"$detached/python"
exec "$python" -I -c 'import os; exec(os.fdopen(3).read())' "$detached" records 3<<EOF
$follow
EOF
