//! What dgl-stacks reads of each Python that this machine has.

use std::path::PathBuf;
use support::{scratch, sh, write};

/// The system's Python, and those old and new ones that this machine has.
fn pythons() -> Vec<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let pyenv = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let kept = pyenv.or(home.map(|home| home.join(".pyenv")));
    let kept = kept.map(|folder| folder.join("versions"));
    let versions = kept
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .into_iter()
        .flatten();
    let is_wanted = |name: &str| name.starts_with("3.8.") || name.starts_with("3.11.");
    let mut found: Vec<PathBuf> = versions
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_wanted))
        .map(|entry| entry.path().join("bin/python"))
        .collect();
    found.push("python3".into());
    found
}

/// Stands still: in an extension written in C, in two threads, and in a sampler that was forked.
/// Where Yama's ptrace_scope is 1, each process says by PR_SET_PTRACER that others than its
/// ancestors may read it too.
const WAITS_PY: &str = "
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
class Loader:
    def waits(self, depth):
        if depth:
            return self.waits(depth - 1)
        threading.Event().wait()
def sampler_waits():
    open('sampler', 'w').write(str(os.getpid()))
    time.sleep(120)
def trainer_waits():
    open('trainer', 'w').write(str(os.getpid()))
    libc.pause()
def anybody_may_read():
    libc.prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)
anybody_may_read()
if os.fork() == 0:
    anybody_may_read()
    sampler_waits()
threading.Thread(target=Loader().waits, args=(3,), name='loader', daemon=True).start()
threading.Thread(target=lambda: time.sleep(120), name='clock', daemon=True).start()
trainer_waits()
";

#[test]
fn slow_every_python_shows_the_names_and_lines_of_its_threads() {
    for python in pythons() {
        let folder = scratch();
        write(&folder, "waits.py", WAITS_PY);
        let script = format!(
            "job=pythons-$$
             echo 127.0.0.1 | ipconf-check | dgl-env --role worker --workspace \"$PWD\" \
                 --master-port $((20000 + $$ % 9000)) -- '{}' waits.py >job.jsonl
             dgl-spawn --connect local --no-preflight --job $job <job.jsonl >run.jsonl 2>&1 & p=$!
             trap 'kill $p; wait $p' EXIT
             until [ -s trainer ] && [ -s sampler ]
             do
                 kill -0 $p || {{ cat run.jsonl >&2; exit 9; }}
                 sleep 0.05
             done
             trainer=$(cat trainer) sampler=$(cat sampler)
             # all wait: nothing runs, and nothing has run for a while
             standing() {{
                 cat /proc/$trainer/task/*/status /proc/$sampler/task/*/status |
                     grep -E '^State|ctxt'
             }}
             runs() {{ standing | grep State | grep -qv sleeping; }}
             until was=$(standing); sleep 0.3; [ \"$was\" = \"$(standing)\" ] && ! runs
             do :; done
             dgl-stacks --connect local --job $job --format jsonl <job.jsonl >stacks.jsonl
             for one in $trainer $sampler; do
                 jq -c \"select(.pid == $one) | .threads | map([.name, .frames]) | sort[]\" \
                     stacks.jsonl
             done",
            python.display()
        );
        let waits = "\"waits (waits.py:8)\",\"waits (waits.py:7)\",\"waits (waits.py:7)\",\
            \"waits (waits.py:7)\"";
        let ran = sh(&folder, &script);
        ran.ends(0);
        let threads: Vec<&str> = ran.out.lines().collect();
        let [main, clock, loader, sampler] = threads[..] else {
            panic!("{}: {}", python.display(), ran.out);
        };
        for (thread, name, frames) in [
            (main, "MainThread", "[\"trainer_waits (waits.py:14)\""),
            (clock, "clock", "[\"<lambda> (waits.py:22)\""),
            (loader, "loader", waits),
            (sampler, "MainThread", "[\"sampler_waits (waits.py:11)\""),
        ] {
            let is_right = thread.starts_with(&format!("[\"{name}\",")) && thread.contains(frames);
            assert!(is_right, "{}: {thread}", python.display());
        }
    }
}
