# A job that outlives its launcher. Sent with preflight.sh and host.sh where --detach was said. In front of it: `records` (what attach has
# to know of this host's processes, JSON lines), `boot` (has a shell read this script), `guard` and `follow` (Python), `guard_words` (the
# guard's arguments behind the folder), `address` (this host's), `facts` (a function: what must be known of servers that stay) and `log_ID`
# (a file's name, per process).
# A job's folder on a host is ~/.local/state/dgl-tools/JOB/ADDRESS: the address, because hosts may share their homes.
# shellcheck disable=SC2154

# A program comes on descriptor 3: as a word it would fill the screen of whoever looks at `ps`.
program='import os; exec(os.fdopen(3).read())'
detached=${HOME:-/nonexistent}/.local/state/dgl-tools/$job/$address

# check_detach: what a guard needs: a Python, and the folder
check_detach() {
  find_python
  [ -n "$python" ] || fault "there is no python3 that could keep the job"
  (umask 077 && mkdir -p -- "$detached" && [ -w "$detached" ]) 2>/dev/null || fault "the job's folder cannot be written: $detached"
}
find_python() {
  python=
  # that of the job, where it has one of its own
  for python_word in "$(enter_0 >/dev/null 2>&1 && command -v python3)" python3 python; do
    if "$python_word" -c 'import sys, hmac, selectors; sys.exit(sys.version_info < (3, 5))' 2>/dev/null </dev/null; then
      python=$python_word
      return
    fi
  done
}

# detach GROUP,PORT ADDRESS [PORT]: the leader of the guards listens at ADDRESS; without PORT that is this host's
detach() {
  # whichever guard has the name first takes its own to its place
  new=$detached.new.$$
  (umask 077 && rm -rf -- "$new" && mkdir -p -- "$new") || { fault "the job's folder cannot be made: $new"; return; }
  [ -n "${python-}" ] || find_python
  printf '%s' "$records" >"$new/processes"
  printf '%s\n' "$token" >"$new/token"
  printf '%s\n' "$python" >"$new/python"
  facts >"$new/facts" 2>/dev/null
  # shellcheck disable=SC2086 # words; s is this script itself, as it came
  printf '%s\n%s\n' "$boot" "$s" | DGL_TOOLS_TOKEN=guard-$token DGL_TOOLS_NEW=$new "$python" -I -c "$program" "$detached" $guard_words "$@" 3<<EOF || return
$guard
EOF
  exec "$python" -I -c "$program" "$detached" 3<<EOF
$follow
EOF
}
