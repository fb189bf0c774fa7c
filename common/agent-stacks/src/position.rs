//! The position of a Python process, compared from sample to sample: a process that computes at one
//! position either spins while it waits, or is in one long call.
//!
//! A position consists of the frames of all threads and of the objects that the local variables of
//! the main thread hold. A loop that makes progress gives at least one of them another
//! object or number (its counter, its batch), even if it spends nearly all of its time in one line.
//! Module-level code has no such variables, so a main thread in it has no position: a loop there
//! cannot be recognized.

use super::reader;
use host::processes::ProcessHandle;
use py_spy::{Frame, StackTrace};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Modules of Python in which a thread waits. A loop in them, for instance with a time limit, is no
/// progress.
const WAITING_FILES: [&str; 6] = [
    "queue.py",
    "selectors.py",
    "socket.py",
    "ssl.py",
    "subprocess.py",
    "threading.py",
];
const WAITING_PACKAGES: [&str; 3] = ["asyncio/", "concurrent/futures/", "multiprocessing/"];

/// These functions of torch ask a store every 10 ms whether all ranks have arrived.
const WAITING_FUNCTIONS: [&str; 1] = ["_store_based_barrier"];

/// A hash, so that the values of variables do not leave this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(pub u64);

/// `None` if the process has no position or cannot be read.
pub fn read(process: ProcessHandle) -> Option<Position> {
    let is_readable = process.is_alive() && reader::has_python(process.pid);
    let traces = is_readable.then(|| reader::traces_with_locals(process).ok());
    position(&traces.flatten()?)
}

/// The main thread comes first.
fn position(traces: &[StackTrace]) -> Option<Position> {
    let mut hasher = DefaultHasher::new();
    traces.first()?;
    for (index, trace) in traces.iter().enumerate() {
        let is_main = index == 0;
        let mut frames = trace
            .frames
            .iter()
            .skip_while(|frame| waits(frame))
            .peekable();
        if is_main && frames.peek().is_none_or(|inner| inner.name == "<module>") {
            return None;
        }
        for frame in frames {
            (&frame.filename, &frame.name, frame.line).hash(&mut hasher);
            // other threads may watch something, and note the time
            for local in frame.locals.iter().flatten().filter(|_| is_main) {
                let number = local.repr.as_deref();
                let number = number.filter(|text| text.parse::<f64>().is_ok());
                (&local.name, local.addr, number).hash(&mut hasher);
            }
        }
    }
    Some(Position(hasher.finish()))
}

/// Whether a frame is in a module of Python or a function of torch that waits. The user's files of
/// the same names do not count.
fn waits(frame: &Frame) -> bool {
    if WAITING_FUNCTIONS.contains(&frame.name.as_str()) {
        return true;
    }
    let is_library = |folder: &str| {
        let version = folder.strip_prefix("python");
        version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    // folders outside of it, such as /opt/python3.11, may be named like the library
    let mut rest = frame.filename.as_str();
    let mut library = None;
    while let Some((folder, inner)) = rest.split_once('/') {
        rest = inner;
        library = is_library(folder).then_some(rest).or(library);
    }
    library.is_some_and(|file| {
        WAITING_FILES.contains(&file)
            || WAITING_PACKAGES
                .iter()
                .any(|package| file.starts_with(package))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use py_spy::stack_trace::LocalVariable;

    const LIBRARY: &str = "/usr/lib/python3.11";

    /// A frame such as `train /job/train.py:12 step=7`, whose variables are numbers.
    fn frame(text: &str) -> Frame {
        let words: Vec<&str> = text.split(' ').collect();
        let (file, line) = words[1].split_once(':').unwrap();
        let locals = words[2..].iter().map(|word| {
            let (name, value) = word.split_once('=').unwrap();
            LocalVariable {
                name: name.to_owned(),
                addr: 4096,
                arg: false,
                repr: Some(value.to_owned()),
            }
        });
        Frame {
            name: words[0].to_owned(),
            filename: file.to_owned(),
            module: None,
            short_filename: None,
            line: line.parse().unwrap(),
            locals: Some(locals.collect()),
            is_entry: false,
            is_shim_entry: false,
        }
    }

    /// The position of a process with these threads, the main thread last; innermost frames first.
    fn process(threads: &[&[&str]]) -> Option<Position> {
        let trace = |(index, frames): (usize, &&[&str])| StackTrace {
            pid: 1,
            thread_id: 1,
            thread_name: (index + 1 == threads.len()).then(|| "MainThread".to_owned()),
            os_thread_id: None,
            active: true,
            owns_gil: false,
            frames: frames.iter().map(|text| frame(text)).collect(),
            process_info: None,
        };
        let traces: Vec<StackTrace> = threads.iter().enumerate().map(trace).rev().collect();
        position(&traces)
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn a_position_is_left_by_another_line_or_another_value() {
        let main = "<module> /job/train.py:40";
        let script: &[&str] = &["main /job/train.py:30", main];
        let select = format!("select {LIBRARY}/selectors.py:416 timeout=0.3");
        let wait = format!("wait {LIBRARY}/threading.py:312 timeout=0.3");
        let queue = format!("get {LIBRARY}/multiprocessing/queues.py:113");
        let own_queue = ["get /job/queue.py:1", "get /job/queue.py:2"];
        let of_package = format!("get {LIBRARY}/site-packages/queue.py:1");
        let of_package_too = of_package.replace(":1", ":2");
        let monitor = [
            "watch /job/gpu.py:9 used=1",
            "watch /job/gpu.py:9 used=2",
            "watch /job/gpu.py:8 used=2",
        ];
        let table: [(&str, &[&[&str]], &[&[&str]], bool); 12] = [
            (
                "the same line and values",
                &[&["step /job/train.py:12 step=7", main]],
                &[&["step /job/train.py:12 step=7", main]],
                true,
            ),
            (
                "another line",
                &[&["step /job/train.py:12", main]],
                &[&["step /job/train.py:13", main]],
                false,
            ),
            (
                "another function at the innermost line",
                &[&["load /job/train.py:12", main]],
                &[&["save /job/train.py:12", main]],
                false,
            ),
            (
                "another round of a loop that calls",
                &[&["step /job/train.py:12", "train /job/train.py:30 batch=7"]],
                &[&["step /job/train.py:12", "train /job/train.py:30 batch=8"]],
                false,
            ),
            (
                "a loop in Python's library, in different rounds of its wait",
                &[&[&select, &queue, "train /job/train.py:30 batch=7"]],
                &[&[&wait, "train /job/train.py:30 batch=7"]],
                true,
            ),
            (
                "it waits in the library, but in another line of the script",
                &[&[&wait, "train /job/train.py:30"]],
                &[&[&wait, "train /job/train.py:31"]],
                false,
            ),
            (
                "a file of the user is no library",
                &[&[own_queue[0], main]],
                &[&[own_queue[1], main]],
                false,
            ),
            (
                "nor is one of a package",
                &[&[&of_package, main]],
                &[&[&of_package_too, main]],
                false,
            ),
            (
                "a thread that notes something and sleeps again",
                &[&[monitor[0]], script],
                &[&[monitor[1]], script],
                true,
            ),
            (
                "a thread that makes progress",
                &[&[monitor[1]], script],
                &[&[monitor[2]], script],
                false,
            ),
            (
                "a thread that begins, and only waits",
                &[script],
                &[&[&queue], script],
                true,
            ),
            (
                "a thread that begins",
                &[script],
                &[&[monitor[0]], script],
                false,
            ),
        ];
        for (case, before, after, is_same) in table {
            let (before, after) = (process(before).unwrap(), process(after).unwrap());
            assert_eq!(before == after, is_same, "{case}");
        }
        let outer_folders = [
            "wait /opt/python3.11/lib/python3.11/threading.py:359",
            "get /home/u/miniforge3/envs/python310/lib/python3.10/queue.py:180",
            "get /srv/python3/apps/lib64/python3.9/multiprocessing/queues.py:103",
        ];
        for wait in outer_folders {
            assert_eq!(process(&[&[wait, main]]), None, "{wait}");
        }
        for nowhere in [&[main][..], &[&wait, main], &[&queue], &[]] {
            assert_eq!(process(&[nowhere]), None, "{nowhere:?}");
        }
    }

    #[test]
    fn objects_are_compared_by_address_and_numbers_by_value_too() {
        let position_of = |addr, repr: &str| {
            let mut frame = frame("train /job/train.py:30 it=0");
            let local = &mut frame.locals.as_mut().unwrap()[0];
            (local.addr, local.repr) = (addr, Some(repr.to_owned()));
            position(&[StackTrace {
                pid: 1,
                thread_id: 1,
                thread_name: None,
                os_thread_id: None,
                active: true,
                owns_gil: true,
                frames: vec![frame],
                process_info: None,
            }])
        };
        assert_ne!(
            position_of(16, "<Tensor at 0x10>"),
            position_of(32, "<Tensor at 0x20>")
        );
        assert_ne!(position_of(16, "300"), position_of(16, "301"));
        // another thread may add frames
        assert_eq!(position_of(16, "[1]"), position_of(16, "[1, 2]"));
    }
}
