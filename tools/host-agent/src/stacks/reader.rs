//! Reads the stacks of one Python, of any version from 2.7 to 3.15, with py-spy.
//!
//! Its memory is read while it continues to run (process_vm_readv); what changes at that moment may
//! be read wrongly, and is read again. Nothing is attached, so no process stays stopped, whatever
//! happens to the reader.

use crate::processes::ProcessHandle;
use crate::procfs;
use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};
use std::io;
use std::time::Duration;
use wire::stacks::{Reading, Thread, Why};

/// How often a Python is tried that is just starting, or that changes what is being read.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Further threads, frames and bytes of a text are useless to people. Together these limits stay
/// below the size of a message, whatever JSON makes of them.
const MAX_THREADS: usize = 64;
const MAX_FRAMES: usize = 40;
const MAX_TEXT: usize = 160;

/// Reads a process; instead of failing, the result tells why there is nothing.
pub fn read(process: ProcessHandle) -> Reading {
    if !process.is_alive() {
        return Reading::unreadable(Why::Ended, "it has ended".to_owned());
    }
    if !has_python(process.pid) {
        return Reading::unreadable(Why::NoPython, "no Python runs in it".to_owned());
    }
    let mut last = Reading::unreadable(Why::Other, String::new());
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_TRIES);
        }
        match traces(process.pid) {
            Ok(traces) => {
                return Reading {
                    threads: threads(process.pid, &traces),
                    error: None,
                };
            }
            Err(Problem::Denied) => return denied(),
            Err(Problem::Other(_)) if !process.is_alive() => {
                return Reading::unreadable(Why::Ended, "it has ended".to_owned());
            }
            Err(Problem::Other(problem)) => last = Reading::unreadable(Why::Other, problem),
        }
    }
    last
}

/// Whether the program itself or one of its libraries is a Python interpreter. Other programs, such
/// as a shell, need not be searched.
fn has_python(pid: i32) -> bool {
    let is_python = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        name.windows(6).any(|part| part == b"python")
    };
    procfs::mapped_files(pid, "/")
        .iter()
        .any(|file| is_python(&file.path))
}

enum Problem {
    /// The kernel does not allow it.
    Denied,
    Other(String),
}

fn traces(pid: i32) -> Result<Vec<StackTrace>, Problem> {
    let config = Config {
        blocking: LockingStrategy::NonBlocking,
        collect_thread_names: true,
        ..Config::default()
    };
    let read = PythonSpy::new(pid, &config).and_then(|mut spy| spy.get_stack_traces());
    read.map_err(|error| {
        let is_denied = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        };
        if error.chain().any(is_denied) {
            Problem::Denied
        } else {
            Problem::Other(cut(&format!("{error:#}")))
        }
    })
}

fn denied() -> Reading {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let ptrace_scope = scope.trim().parse().unwrap_or(0);
    let problem = match ptrace_scope {
        0 => "the kernel does not let this login read it".to_owned(),
        scope => format!(
            "the kernel does not let this login read it (kernel.yama.ptrace_scope is {scope})"
        ),
    };
    unreadable(Why::Denied { ptrace_scope }, problem)
}

/// The threads: the main thread first, the others in the order in which they began.
fn threads(pid: i32, traces: &[StackTrace]) -> Vec<Thread> {
    let is_main = |trace: &StackTrace| trace.thread_name.as_deref() == Some("MainThread");
    // py-spy returns the youngest first
    let (main, others): (Vec<_>, Vec<_>) = traces.iter().rev().partition(|trace| is_main(trace));
    main.into_iter()
        .chain(others)
        .take(MAX_THREADS)
        .map(|trace| {
            let own_number = if is_main(trace) {
                Some(pid.cast_unsigned())
            } else {
                None
            };
            let tid = trace.os_thread_id.and_then(|tid| u32::try_from(tid).ok());
            let runs = || procfs::stat(pid).is_some_and(|stat| stat.state == 'R');
            Thread {
                name: trace.thread_name.as_deref().map(cut),
                tid: tid.or(own_number),
                // without the thread id py-spy takes a thread for active, which it cannot know
                active: match (tid, own_number) {
                    (Some(_), _) => trace.active,
                    (None, Some(_)) => runs(),
                    (None, None) => trace.owns_gil,
                },
                frames: trace.frames.iter().take(MAX_FRAMES).map(frame).collect(),
            }
        })
        .collect()
}

/// A frame in words. Pythons from 3.11 on also tell the class of a method, which is left out so
/// that equal places look equal.
fn frame(frame: &py_spy::Frame) -> String {
    let function = frame.name.rsplit('.').next().unwrap_or(&frame.name);
    let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
    cut(&format!("{function} ({file}:{})", frame.line))
}

/// The text without control characters, and cut if it is long. The end stays, because it has the
/// file and the line.
fn cut(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    if text.len() <= MAX_TEXT {
        return text.chars().map(plain).collect();
    }
    let mut begin = text.len() - MAX_TEXT;
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    format!("…{}", &text[begin..]).chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_short_and_plain() {
        assert_eq!(cut("f (a.py:1)"), "f (a.py:1)");
        assert_eq!(cut("f\u{1b}[2J"), "f?[2J");
        let long = format!("{}ü (a.py:12)", "ö".repeat(200));
        let short = cut(&long);
        assert!(short.len() <= MAX_TEXT + 3, "{short}");
        assert!(
            short.starts_with('…') && short.ends_with("ü (a.py:12)"),
            "{short}"
        );
    }

    #[test]
    fn what_is_no_python_is_told_so() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = ProcessHandle::of(child.id().cast_signed()).unwrap();
        let reading = read(process);
        assert_eq!(reading.error.map(|error| error.why), Some(Why::NoPython));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(read(process).error.map(|error| error.why), Some(Why::Ended));
    }
}
