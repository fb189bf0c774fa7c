//! What dgl-stacks reads against what py-spy's own program reads, frame by frame.

use serde_json::Value;
use std::path::{Path, PathBuf};
use support::{made_by, scratch, sh, write};

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

/// Runs the Python above while `script` runs; `$trainer` and `$sampler` are its processes, and
/// both wait. What `script` prints.
fn beside(python: &Path, script: &str) -> String {
    let folder = scratch();
    write(&folder, "waits.py", WAITS_PY);
    let script = format!(
        "job=py-spy-$$
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
         # all of them have come to where they wait: nothing runs, and nothing has run for a while
         standing() {{
             cat /proc/$trainer/task/*/status /proc/$sampler/task/*/status | grep -E '^State|ctxt'
         }}
         runs() {{ standing | grep State | grep -qv sleeping; }}
         until was=$(standing); sleep 0.3; [ \"$was\" = \"$(standing)\" ] && ! runs
         do :; done
         read_by_us() {{
             dgl-stacks --connect local --job $job --format jsonl <job.jsonl |
                 grep '\"stack\"' | grep '\"pid\":'$1,
         }}
         {script}",
        python.display()
    );
    let ran = sh(&folder, &script);
    ran.ends(0);
    ran.out
}

/// Names, numbers and frames of the threads, ordered by their names.
type Threads = Vec<(String, Option<u64>, bool, Vec<String>)>;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn ours(line: &str) -> Threads {
    let read: Value = serde_json::from_str(line).unwrap();
    let threads = read["threads"].as_array().unwrap().iter();
    let mut threads: Threads = threads
        .map(|thread| {
            let frames = thread["frames"].as_array().unwrap();
            (
                text(&thread["name"]),
                thread["tid"].as_u64(),
                thread["active"].as_bool().unwrap(),
                frames.iter().map(text).collect(),
            )
        })
        .collect();
    threads.sort();
    threads
}

/// py-spy names the class of a method from Python 3.11 on, and knows the numbers of threads from
/// there on, but for the main one's, which is that of the process.
fn theirs(line: &str) -> Threads {
    let read: Value = serde_json::from_str(line).unwrap();
    let threads = read.as_array().unwrap().iter();
    let mut threads: Threads = threads
        .map(|thread| {
            let name = text(&thread["thread_name"]);
            let tid = thread["os_thread_id"].as_u64();
            let is_main = name == "MainThread";
            let frame = |frame: &Value| {
                let function = text(&frame["name"]);
                let function = function.rsplit('.').next().unwrap().to_owned();
                let file = text(&frame["short_filename"]);
                format!("{function} ({file}:{})", frame["line"])
            };
            let frames = thread["frames"].as_array().unwrap();
            (
                name,
                tid.or(is_main.then(|| thread["pid"].as_u64().unwrap())),
                // without a number it takes a thread for active
                thread["active"].as_bool().unwrap() && tid.is_some(),
                frames.iter().map(frame).collect(),
            )
        })
        .collect();
    threads.sort();
    threads
}

/// The recipe of dgl-stacks(1): py-spy attaches itself for this, and stops all threads.
#[test]
fn slow_py_spy_shows_the_function_of_c_that_makes_the_system_call_that_we_show() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let Some(py_spy) = made_by("tests/py-spy.sh", "py-spy") else {
        return;
    };
    for python in pythons() {
        let script = format!(
            "read_by_us $trainer; '{py_spy}' dump --native --json --pid $trainer | tr -d '\\n'"
        );
        let out = beside(&python, &script);
        let mut lines = out.lines().filter(|line| !line.is_empty());
        let mut next = || serde_json::from_str::<Value>(lines.next().expect(&out)).unwrap();
        let (ours, theirs) = (next(), next());
        let main = |threads: &Value, name: &str| -> Value {
            let mut threads = threads.as_array().unwrap().iter();
            threads
                .find(|one| one[name] == "MainThread")
                .unwrap()
                .clone()
        };
        let ours = main(&ours["threads"], "name");
        let theirs = main(&theirs, "thread_name");
        assert_eq!(ours["system_call"], "pause", "{}: {out}", python.display());
        let innermost = text(&theirs["frames"][0]["name"]);
        // one function may have several names: pause and __pause
        let innermost = innermost.trim_start_matches('_');
        assert!(innermost.contains("pause"), "{}: {out}", python.display());
    }
}

#[test]
fn slow_py_spy_reads_the_same_frames_of_each_thread() {
    let Some(py_spy) = made_by("tests/py-spy.sh", "py-spy") else {
        return;
    };
    for python in pythons() {
        let script = format!(
            "for one in $trainer $sampler; do
                 read_by_us $one
                 '{py_spy}' dump --json --nonblocking --pid $one | tr -d '\\n'; echo
             done"
        );
        let out = beside(&python, &script);
        let lines: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
        let [our_trainer, trainer, our_sampler, sampler] = lines[..] else {
            panic!("{}: {out}", python.display());
        };
        let read = ours(our_trainer);
        assert_eq!(read, theirs(trainer), "{}", python.display());
        let names: Vec<&str> = read.iter().map(|thread| thread.0.as_str()).collect();
        assert_eq!(names, ["MainThread", "clock", "loader"]);
        assert_eq!(read[0].3[0], "trainer_waits (waits.py:14)");
        let waits = read[2]
            .3
            .iter()
            .filter(|frame| frame.starts_with("waits ("));
        assert_eq!(waits.count(), 4, "{:?}", read[2]);
        let read = ours(our_sampler);
        assert_eq!(read, theirs(sampler), "{}", python.display());
        assert_eq!(read[0].3[0], "sampler_waits (waits.py:11)");
    }
}
