# What a host looks at before the start: each check says what is wrong there, a line `fault TEXT` each. Sent between common's job.sh and
# host.sh, and called by `checks`, which the plan writes for each host.

fault() { printf 'fault %s\n' "$*"; }
check_folder() { [ -d "$1" ] || fault "no such folder: $1"; }
check_file() { # FOLDER FILE
  case $2 in /*) set -- "" "$2" ;; *) set -- "$1/" "$2" ;; esac
  if [ ! -f "$1$2" ]; then fault "no such file: $1$2"; elif [ ! -r "$1$2" ]; then fault "cannot be read: $1$2"; fi
}
# check_ip_config FOLDER FILE: shows the file, so that it is held against the records
check_ip_config() {
  case $2 in /*) set -- "" "$2" ;; *) set -- "$1/" "$2" ;; esac
  [ ! -r "$1$2" ] || printf 'config %s\n' "$(base64 <"$1$2" | tr -d '\n')"
}
# check_command ID WORD: with the environment that the process will have
check_command() {
  ( "enter_$1" && command -v -- "$2" ) >/dev/null 2>&1 || fault "no such command: $2"
}
# check_port PORT HEXPORT: DGL sets SO_REUSEADDR, so only a listener is in its way
check_port() {
  port_line=$(LC_ALL=C grep -hsiE "^ *[0-9]+: [0-9A-F]+:$2 [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 | head -n 1)
  [ -n "$port_line" ] || return 0
  port=$1
  # shellcheck disable=SC2086
  set -- $port_line # sl local remote st queues tr when retrnsmt uid timeout inode
  port_inode=${10}
  # shellcheck disable=SC2012 # names here are numbers
  port_pid=$(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v s="socket:[$port_inode]" '/^\/proc/ { d = $1 } index($0, s) { split(d, a, "/"); print a[3]; exit }')
  port_job=; [ -z "$port_pid" ] || port_job=$(job_env "$port_pid" DGL_TOOLS_JOB)
  fault "port $port is taken${port_pid:+ by process $port_pid ($(tr '\0' ' ' <"/proc/$port_pid/cmdline" | cut -c 1-60))}${port_job:+ of job $port_job}"
}
