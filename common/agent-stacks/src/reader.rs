//! Reads the stacks of one Python, of any version from 2.7 to 3.15, with py-spy.
//!
//! Its memory is read while it runs (process_vm_readv). If it changes at that moment, the result
//! may be wrong, and it is read again. Nothing is attached to the process, so it is never left
//! stopped, whatever happens to the reader.

use super::system_call;
use host::processes::ProcessHandle;
use host::procfs;
use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};
use record::Thread;
use record::stacks::{MAIN_THREAD, NO_PYTHON};
use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use wire::stacks::{MAX_FRAMES, MAX_TEXT, MAX_THREADS, Why};

/// A panic in a thread of this name does not end the program.
pub const THREAD: &str = "stacks";
/// How often to try a Python that is starting, or whose memory changes while it is read.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The stacks, or why they could not be read.
#[derive(Debug, Default)]
pub struct Reading {
    pub threads: Vec<Thread>,
    pub error: Option<String>,
    pub why: Option<Why>,
}

impl Reading {
    pub fn unreadable(why: Why, error: String) -> Reading {
        Reading {
            threads: Vec::new(),
            error: Some(error),
            why: Some(why),
        }
    }

    pub fn no_python() -> Reading {
        Reading::unreadable(Why::NoPython, NO_PYTHON.to_owned())
    }
}

pub fn read(process: ProcessHandle) -> Reading {
    if !process.is_alive() {
        return Reading::unreadable(Why::Ended, "it has ended".to_owned());
    }
    if !has_python(process.pid) {
        return Reading::no_python();
    }
    let mut last = Reading::unreadable(Why::Other, String::new());
    for attempt in 0..TRIES {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_TRIES);
        }
        match Spy::new(process).traces() {
            Ok(traces) => {
                let mut threads = threads(process.pid, &traces, MAX_FRAMES);
                add_system_calls(process.pid, &traces, &mut threads);
                return Reading {
                    threads,
                    ..Reading::default()
                };
            }
            Err(ReadProblem::Denied) => return denied(),
            Err(ReadProblem::Other(_)) if !process.is_alive() => {
                return Reading::unreadable(Why::Ended, "it has ended".to_owned());
            }
            Err(ReadProblem::Other(problem)) => last = Reading::unreadable(Why::Other, problem),
        }
    }
    last
}

/// Whether the program or one of its libraries is a Python interpreter. Other programs, such as a
/// shell, are not searched.
pub fn has_python(pid: i32) -> bool {
    let is_python = |name: &OsStr| name.as_bytes().windows(6).any(|part| part == b"python");
    procfs::mappings(pid, "/")
        .iter()
        .any(|mapping| mapping.path.file_name().is_some_and(is_python))
}

pub enum ReadProblem {
    Denied,
    Other(String),
}

/// Reads a process repeatedly. Its interpreter, whose search takes most of the time, is found once.
pub struct Spy {
    pub process: ProcessHandle,
    opened: Option<PythonSpy>,
    with_locals: bool,
    pub failures: u32,
}

impl Spy {
    pub fn new(process: ProcessHandle) -> Spy {
        Spy {
            process,
            opened: None,
            with_locals: false,
            failures: 0,
        }
    }

    pub fn read_threads(&mut self, most_frames: usize) -> Result<Vec<Thread>, ReadProblem> {
        let traces = self.traces()?;
        Ok(threads(self.process.pid, &traces, most_frames))
    }

    fn traces(&mut self) -> Result<Vec<StackTrace>, ReadProblem> {
        let config = Config {
            blocking: LockingStrategy::NonBlocking,
            collect_thread_names: true,
            dump_locals: u64::from(self.with_locals),
            ..Config::default()
        };
        let read = match &mut self.opened {
            Some(spy) => spy.get_stack_traces(),
            opened => PythonSpy::new(self.process.pid, &config)
                .and_then(|spy| opened.insert(spy).get_stack_traces()),
        };
        self.failures = if read.is_ok() { 0 } else { self.failures + 1 };
        let mut traces = read.map_err(|error| {
            if error.chain().any(is_denied) {
                ReadProblem::Denied
            } else {
                ReadProblem::Other(cut(&format!("{error:#}")))
            }
        })?;
        // py-spy returns the youngest first
        traces.reverse();
        main_first(&mut traces);
        Ok(traces)
    }
}

/// The main thread comes first.
pub fn traces_with_locals(process: ProcessHandle) -> Result<Vec<StackTrace>, ReadProblem> {
    let mut spy = Spy::new(process);
    spy.with_locals = true;
    spy.traces()
}

fn is_denied(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

pub fn denied() -> Reading {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let ptrace_scope = scope.trim().parse().unwrap_or(0);
    let mut problem = "the kernel does not let the agent read it".to_owned();
    if ptrace_scope > 0 {
        problem += &format!(" (kernel.yama.ptrace_scope is {ptrace_scope})");
    }
    Reading::unreadable(Why::Denied { ptrace_scope }, problem)
}

fn is_main(trace: &StackTrace) -> bool {
    trace.thread_name.as_deref() == Some(MAIN_THREAD)
}

/// Puts the main thread first, keeps the order of the others, and limits their number. A Python
/// that never imported `threading` has no names; its main thread gets the usual one.
fn main_first(traces: &mut Vec<StackTrace>) {
    if traces.iter().all(|trace| trace.thread_name.is_none()) {
        let is_alone = traces.len() == 1;
        let is_first =
            |trace: &&mut StackTrace| trace.os_thread_id == u64::try_from(trace.pid).ok();
        let main = traces.iter_mut().find(|trace| is_alone || is_first(trace));
        if let Some(main) = main {
            main.thread_name = Some(MAIN_THREAD.to_owned());
        }
    }
    traces.sort_by_key(|trace| !is_main(trace));
    traces.truncate(MAX_THREADS);
}

fn threads(pid: i32, traces: &[StackTrace], most_frames: usize) -> Vec<Thread> {
    let traces = traces.iter();
    traces
        .map(|trace| thread(pid, trace, most_frames))
        .collect()
}

fn thread(pid: i32, trace: &StackTrace, most_frames: usize) -> Thread {
    let own_number = is_main(trace).then_some(pid.cast_unsigned());
    // Python in a container has the number in that container
    let is_here = |tid: &u32| procfs::of_thread(pid, *tid, "stat").is_some();
    let tid = trace.os_thread_id.and_then(|tid| u32::try_from(tid).ok());
    let tid = tid.filter(is_here);
    let runs = || procfs::stat(pid).is_some_and(|stat| stat.state == 'R');
    Thread {
        name: trace.thread_name.as_deref().map(cut),
        tid: tid.or(own_number),
        // without the number, py-spy considers every thread active
        active: match (tid, own_number) {
            (Some(_), _) => trace.active,
            (None, Some(_)) => runs(),
            (None, None) => trace.owns_gil,
        },
        frames: trace.frames.iter().take(most_frames).map(frame).collect(),
        ..Thread::default()
    }
}

/// Threads without a number in Python are found by their stacks.
fn add_system_calls(pid: i32, traces: &[StackTrace], threads: &mut [Thread]) {
    let (mut stacks, mut ranges) = (Vec::new(), Vec::new());
    if threads.iter().any(|thread| thread.tid.is_none()) {
        stacks = system_call::stack_pointers(pid);
        let mappings = procfs::mappings(pid, "").into_iter();
        ranges = mappings.map(|mapping| mapping.range).collect();
    }
    for (thread, trace) in threads.iter_mut().zip(traces) {
        let by_stack = || by_stack(trace.thread_id, &stacks, &ranges);
        let tid = thread.tid.or_else(by_stack);
        thread.system_call = tid.and_then(|tid| system_call::of_thread(pid, tid));
    }
}

/// The number of a thread whose pthread_t Python has: glibc and musl put that descriptor at the end
/// of the stack, so it is the thread with a stack pointer below it in the same mapping. A guard
/// page separates stacks.
fn by_stack(description: u64, stacks: &[(u32, u64)], ranges: &[Range<u64>]) -> Option<u32> {
    let range = ranges.iter().find(|range| range.contains(&description))?;
    let is_its = |(_, pointer): &&(u32, u64)| (range.start..description).contains(pointer);
    let mut found = stacks.iter().filter(is_its);
    match (found.next(), found.next()) {
        (Some((tid, _)), None) => Some(*tid),
        _ => None,
    }
}

/// Pythons from 3.11 on also report the class of a method, which is left out so that equal frames
/// look equal.
fn frame(frame: &py_spy::Frame) -> String {
    let function = frame.name.rsplit('.').next().unwrap_or(&frame.name);
    let file = frame.short_filename.as_ref().unwrap_or(&frame.filename);
    cut(&format!("{function} ({file}:{})", frame.line))
}

/// Replaces control characters, and cuts a long text at its beginning, because its end has the file
/// and the line.
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
    fn a_thread_is_found_by_its_stack() {
        let stacks = [(10, 0x7fff_0000_1000), (11, 0x5000_0000), (12, 0x5100_0000)];
        let ranges = [
            0x4f00_0000..0x5080_1000,
            0x5080_2000..0x5180_0000,
            0x5200_0000..0x5300_0000,
        ];
        let table = [
            (0x5080_0000, Some(11)),
            (0x517f_f000, Some(12)),
            // it computes, and another thread waits below
            (0x5280_0000, None),
            // unmapped memory; below the stack of the waiting thread
            (0x4000_0000, None),
            (0x4fff_0000, None),
        ];
        for (description, expected) in table {
            let found = by_stack(description, &stacks, &ranges);
            assert_eq!(found, expected, "{description:x}");
        }
    }

    #[test]
    fn what_is_no_python_is_told_so() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = ProcessHandle::of(child.id().cast_signed()).unwrap();
        let reading = read(process);
        assert_eq!(reading.why, Some(Why::NoPython));
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(read(process).why, Some(Why::Ended));
    }
}
