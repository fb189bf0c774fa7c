# What a host looks at before the start. Sent between common's job.sh and host.sh; the plan writes a function `checks` that calls what
# is here. Each check says, a line each, what is wrong or what only the launcher can judge:
#   fault TEXT
#   config B64                          the ip_config
#   part_config CRC NUM_PARTS NAME      the partition config, NAME its graph's name as `:BASE64`
#   elsewhere FILE                      a file of this host's part lies where only DGL 0.5 looks for it
#   holds PORT TEXT                     who listens on a port of the job
#   left JOB TEXT | named JOB           processes of a job that nobody watches any more; a job of this job's name that lives
#   shm used FILES BYTES PROCESS | shm stale FILES BYTES FILE | shm foreign FILES BYTES USER      of a DGL job: mapped; of this user and
#                                       mapped by nobody; of another user, and nobody is seen who maps it
#   listens PORT... | unreached IP:PORT WHY | reached | alive      (preflight.py) to and from the other hosts
# shellcheck disable=SC2154 # job is sent in front of it

fault() { printf 'fault %s\n' "$*"; }

# at FOLDER FILE: sets `path`
at() { case $2 in /*) path=$2 ;; *) path=$1/$2 ;; esac; }

check_folder() { [ -d "$1" ] || { fault "no such folder: $1"; return 1; }; }
check_file() { # FOLDER FILE
  at "$1" "$2"
  if [ ! -f "$path" ]; then fault "no such file: $path"; elif [ ! -r "$path" ]; then fault "cannot be read: $path"; fi
}
check_ip_config() { # FOLDER FILE
  at "$1" "$2"
  [ ! -r "$path" ] || printf 'config %s\n' "$(base64 <"$path" | tr -d '\n')"
}

# config_facts FILE PART: what matters of a partition config, a line `KEY VALUE` each. A part holds nothing but texts.
config_facts() {
  LC_ALL=C awk -v part="\"part-$2\"" '
    function value(text, key) {
      if (!match(text, "\"" key "\"[ \t]*:[ \t]*(\"[^\"\\\\]*\"|[0-9]+)")) return ""
      text = substr(text, RSTART + length(key) + 2, RLENGTH - length(key) - 2)
      sub(/^[ \t]*:[ \t]*"?/, "", text); sub(/"$/, "", text)
      return text
    }
    function tell(text, key) { if (value(text, key) != "") print key, value(text, key) }
    { all = all " " $0 }
    END {
      print "num_parts", value(all, "num_parts"); print "graph_name", value(all, "graph_name")
      tell(all, "node_map"); tell(all, "edge_map")
      at = index(all, part)
      if (!at) exit
      own = substr(all, at + length(part)); own = substr(own, 1, index(own, "}"))
      print "part"
      tell(own, "node_feats"); tell(own, "edge_feats"); tell(own, "part_graph"); tell(own, "part_graph_graphbolt")
    }' "$1"
}

# mib_of FILE: its size in MiB, which a shell with numbers of 32 bits can add (mksh)
mib_of() {
  # shellcheck disable=SC2012 # one file; the fifth word is its size whatever its name
  ls -lnL -- "$1" 2>/dev/null | awk 'NR == 1 { printf "%.0f\n", $5 / 1048576 }'
}

# check_config FOLDER FILE PART: the partition config, and that this host has what its servers load of it (PART is empty where none
# runs here) and room for it in /dev/shm, where they load it to
check_config() {
  at "$1" "$2"
  [ -r "$path" ] || return 0
  config=$path num_parts='' graph_name='' own='' graphs='' missing='' need=0 graph=0
  while read -r key value; do
    case $key in
      num_parts) num_parts=$value ;;
      graph_name) graph_name=$value ;;
      part) own=1 ;;
      # a list of numbers stands in the config itself; DGL to 0.9 may name a file, from the working directory
      node_map | edge_map) case $value in *.npy) check_file "$1" "$value" ;; esac ;;
      *) [ -z "$3" ] || part_file "$1" "$key" "$value" ;;
    esac
  done <<EOF
$(config_facts "$config" "$3")
EOF
  printf 'part_config %s %s %s\n' "$(cksum <"$config" | tr ' ' :)" "${num_parts:--}" "$(printf %s "$graph_name" | job_b64)"
  [ -n "$3" ] || return 0
  [ -n "$own" ] || { fault "$config has no part-$3, which is this host's"; return 0; }
  # the graph may be there in two forms; the script chooses which of them is loaded
  [ -n "$graphs" ] || fault "${missing:-$config names no graph for part-$3}"
  need=$((need + graph))
  room=$(LC_ALL=C df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { printf "%.0f", $4 / 1024 }')
  [ "$need" -le "${room:-$need}" ] || fault "its part of the graph has $need MiB, and /dev/shm only $room MiB of room"
}
part_file() { # FOLDER KEY FILE
  at "${config%/*}" "$3"
  if [ -r "$path" ]; then
    size=$(mib_of "$path") size=${size:-0}
    case $2 in
      part_graph*) graphs=1; [ "$size" -le "$graph" ] || graph=$size ;;
      *) need=$((need + size)) ;;
    esac
    return 0
  fi
  problem="no such file: $path"
  if [ -e "$path" ]; then problem="cannot be read: $path"; fi
  case $3 in /*) ;; *) if [ -r "$1/$3" ]; then graphs=1; printf 'elsewhere %s\n' "$path"; return 0; fi ;; esac
  case $2 in part_graph*) missing=$problem ;; *) fault "$problem" ;; esac
}

# check_command ID WORD [TEXT]: with the environment that the process will have; where it has a setup, TEXT is the setup and then asks
check_command() {
  case $#,${SHELL-} in
    3,*csh) return 0 ;; # it has another way to ask
    3,*) ( "enter_$1" && exec "${SHELL:-/bin/sh}" -c "$3" ) ;;
    *) ( "enter_$1" && command -v -- "$2" ) ;;
  esac </dev/null >/dev/null 2>&1 || { fault "no such command: $2"; return 1; }
}

# check_nofile NEED: the soft limit is raised as far as it has to be, the hard one is the host's
check_nofile() {
  # shellcheck disable=SC3045 # dash, bash, busybox and mksh all know ulimit -H and -S
  { limit=$(ulimit -H -n); [ "$(ulimit -S -n)" = unlimited ] || [ "$(ulimit -S -n)" -ge "$1" ] || ulimit -S -n "$1" 2>/dev/null; } && return
  fault "a process may have $limit open files, and a server needs about $1 for the clients of this job"
}

# check_ports PORT/HEXPORT/HEXADDRESS...: what listens there, on that address or on all (`any` stands for any); anything else, such as
# TIME_WAIT, is not in the way of SO_REUSEADDR. Sets `held`.
check_ports() {
  held=
  [ "$#" -gt 0 ] || return 0
  # shellcheck disable=SC2013 # no blank in a word
  for word in $(LC_ALL=C awk -v wanted="$*" '
    BEGIN { count = split(wanted, words, " "); for (i = 1; i <= count; i++) { split(words[i], w, "/"); port[w[2]] = w[1]; address[w[2]] = w[3] } }
    $4 == "0A" {
      split(toupper($2), local, ":"); on = local[1]; p = local[2]
      if (p in port && !(p in seen) && (address[p] == "any" || on ~ /^0+$/ || substr(on, length(on) - 7) == address[p])) {
        seen[p] = 1; print port[p] "/" $10 "/" $8
      }
    }' /proc/net/tcp /proc/net/tcp6 2>/dev/null); do
    inode=${word#*/} uid=${word##*/} word=${word%%/*}
    inode=${inode%/*}
    held=$held,$word
    # shellcheck disable=SC2012 # names here are numbers
    pid=$(ls -l /proc/[0-9]*/fd 2>/dev/null | awk -v s="socket:[$inode]" '/^\/proc/ { d = $1 } index($0, s) { split(d, a, "/"); print a[3]; exit }')
    printf 'holds %s %s\n' "$word" "$(who "$pid" "$uid")"
  done
  # a job that host-agent looks after has claimed its ports before it listens on them
  for word; do
    word=${word%%/*}
    case $held, in *",$word,"*) continue ;; esac
    ! grep -qs " @dgl-tools/port/$word/" /proc/net/unix || printf 'holds %s a job that is about to listen there\n' "$word"
  done
}

# who PID UID: a process in words: `process 12 (python3 train.py) of job a`, with its user where that is not this one
who() {
  who_job=
  if [ -n "$1" ]; then
    who_job=$(job_env "$1" DGL_TOOLS_JOB)
    printf 'process %s (%s)' "$1" "$(tr '\0\n' '  ' <"/proc/$1/cmdline" 2>/dev/null | sed 's,^[^ ]*/,,; s/ *$//' | cut -c 1-60)"
  else
    printf 'a process'
  fi
  [ -z "$who_job" ] || printf ' of job %s' "$who_job"
  [ "$2" = "$(id -u)" ] || printf ' of user %s' "$(user_name "$2")"
}
user_name() { awk -F: -v uid="$1" '$3 == uid { name = $1 } END { print name != "" ? name : uid }' /etc/passwd; }

# check_jobs: what earlier jobs of this user have left, and whether one of this job's name runs. The watch of a job that lives carries
# its token and no name. It is a new process each second, so a job without one is looked at again.
check_jobs() {
  # shellcheck disable=SC2034 # three looks
  for try in 1 2 3; do
    check_left=$(job_list | awk -v job="$job" '
      { pids[$2] = pids[$2] " " $1; if ($3 == "") watched[$2] = 1; else name[$2] = $3 }
      END { for (t in pids) if (!(t in watched)) print "left", name[t], "process" pids[t]; else if (name[t] == job) print "named", job }')
    case $check_left in *left*) sleep 0.3 2>/dev/null || sleep 1 ;; *) break ;; esac
  done
  [ -z "$check_left" ] || printf '%s\n' "$check_left"
}

# check_shm: files of DGL in /dev/shm, by the user and the process that maps them
check_shm() {
  me=$(id -u)
  job_dgl_shm | awk '
    { key = $1 " " $2; files[key]++; bytes[key] += $3; sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ /, ""); name[key] = $0 }
    END { for (key in files) printf "%s %d %.0f %s\n", key, files[key], bytes[key], name[key] }' |
    while read -r uid pid files bytes name; do
      if [ "$pid" != - ]; then printf 'shm used %s %s %s\n' "$files" "$bytes" "$(who "$pid" "$uid")"
      elif [ "$uid" = "$me" ]; then printf 'shm stale %s %s %s\n' "$files" "$bytes" "$name"
      else printf 'shm foreign %s %s %s\n' "$files" "$bytes" "$(user_name "$uid")"; fi
    done
}

# check_python ID WORD...: the words run preflight.py with the environment that the process will have. A setup may talk too: only
# marked lines count, and its last other one tells why nothing runs.
check_python() {
  check_id=$1; shift
  ( "enter_$check_id" && export DGL_TOOLS_TOLD="${held#,}" && exec "$@" ) 5<&0 </dev/null 2>&1 | {
    runs='' last=''
    while IFS= read -r line; do
      case $line in
        'dgl-tools-look runs') runs=1 ;;
        'dgl-tools-look '*) printf '%s\n' "${line#* }" ;;
        *) [ -z "$line" ] || last=$line ;;
      esac
    done
    [ -n "$runs" ] || fault "its Python does not run: $last"
  }
}
