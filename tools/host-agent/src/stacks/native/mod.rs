//! What a waiting thread waits for below Python: the system call in which the kernel holds it, and
//! the C and C++ functions that lead there.
//!
//! Nothing is attached and nothing is stopped. For a thread that waits, the kernel tells its stack
//! pointer and its place in the code (/proc/PID/task/TID/syscall); from there the tables that
//! C++ needs for its exceptions, which every library has, lead from caller to caller
//! ([`unwind`]), through memory that is read while the process runs on. The kernel counts how
//! often a thread was put aside: if that count is the same before and after, the thread has not
//! moved meanwhile, and what was read is true. A thread that computes has no such place.

mod images;
mod syscall;
mod unwind;

use crate::procfs;
use images::Files;
pub use images::Images;
use syscall::Blocked;
use wire::stacks::{MAX_NATIVE_FRAMES, MAX_NATIVE_TEXT as MAX_TEXT};

/// A thread that goes on while it is read is tried so often.
const TRIES: u32 = 3;
/// With as many frames as there are of a thread, and their length, they stay below what a
/// message may have.
const MAX_THREADS: usize = 32;

/// What holds a thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Native {
    /// The system call.
    pub system_call: Option<String>,
    /// `function (file)`, the innermost first.
    pub frames: Vec<String>,
}

/// Has the programs and libraries at hand that a process has now. They are read as far as they are
/// needed, once.
pub fn with_images<T>(pid: i32, work: impl FnOnce(&Images<'_>) -> T) -> T {
    let maps = procfs::mappings(pid, "/");
    let files = Files::of(pid, &maps);
    work(&Images::of(&files))
}

/// What holds each of these threads of a process, by their numbers in the kernel; nothing of one
/// that computes. The frames end at the Python function that called them.
pub fn read(pid: i32, threads: &[Option<u32>], images: &Images<'_>) -> Vec<Native> {
    let held = |(at, tid): (usize, &Option<u32>)| {
        let tid = tid.filter(|_| at < MAX_THREADS);
        tid.and_then(|tid| hold(pid, tid, images))
            .unwrap_or_default()
    };
    threads.iter().enumerate().map(held).collect()
}

/// The threads of a process that wait, each with its stack pointer.
pub fn stack_pointers(pid: i32) -> Vec<(u32, u64)> {
    let threads = procfs::threads(pid).into_iter();
    threads
        .filter_map(|tid| Some((tid, syscall::blocked(pid, tid)?.stack_pointer)))
        .collect()
}

/// What holds one thread, if it rests for as long as that is read.
fn hold(pid: i32, tid: u32, images: &Images<'_>) -> Option<Native> {
    (0..TRIES).find_map(|_| {
        let before = procfs::switches(pid, tid)?;
        let blocked = syscall::blocked(pid, tid)?;
        let native = Native {
            system_call: blocked.name(pid, tid),
            frames: frames(pid, &blocked, images),
        };
        let is_true = procfs::switches(pid, tid)? == before && syscall::blocked(pid, tid).is_some();
        is_true.then_some(native)
    })
}

fn frames(pid: i32, blocked: &Blocked, images: &Images<'_>) -> Vec<String> {
    let addresses = unwind::walk(
        (blocked.address, blocked.stack_pointer),
        |address| read_word(pid, address),
        images,
    );
    let names = addresses.into_iter().map(|address| images.name(address));
    names
        .take_while(|name| !is_python_function(name))
        .take(MAX_NATIVE_FRAMES)
        .map(|name| cut(&name))
        .collect()
}

/// Whether this function runs one of Python: the frames of that are known.
fn is_python_function(name: &str) -> bool {
    ["_PyEval_EvalFrame", "PyEval_EvalFrame"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

fn read_word(pid: i32, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    let there = nix::sys::uio::RemoteIoVec {
        base: usize::try_from(address).ok()?,
        len: bytes.len(),
    };
    let mut here = [std::io::IoSliceMut::new(&mut bytes)];
    let pid = nix::unistd::Pid::from_raw(pid);
    let count = nix::sys::uio::process_vm_readv(pid, &mut here, &[there]).ok()?;
    (count == bytes.len()).then_some(u64::from_ne_bytes(bytes))
}

/// Names come from files of the user's. Of a long one the beginning and the file are left.
fn cut(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\' || c == ' ';
    let plain: String = name
        .chars()
        .map(|c| if is_plain(c) { c } else { '?' })
        .collect();
    if plain.len() <= MAX_TEXT {
        return plain;
    }
    let file = plain.rfind(" (").unwrap_or(plain.len());
    let file = &plain[file..];
    let file = &file[..file.len().min(MAX_TEXT / 2)];
    format!("{}...{file}", &plain[..MAX_TEXT - file.len() - 3])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    struct Ends(Child);
    impl Drop for Ends {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_name_is_short_and_plain() {
        assert_eq!(cut("poll (libc.so.6)"), "poll (libc.so.6)");
        assert_eq!(cut("a\u{1b}\"\\ü (x)"), "a???? (x)");
        let short = cut(&format!("{} (libtorch_cpu.so)", "x".repeat(900)));
        assert_eq!(short.len(), MAX_TEXT);
        assert!(short.ends_with("x... (libtorch_cpu.so)"), "{short}");
        assert!(cut(&format!("f ({})", "y".repeat(900))).len() <= MAX_TEXT);
    }

    #[test]
    fn a_program_that_waits_is_followed_to_its_main_and_one_that_computes_is_not() {
        let sleep = Ends(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = sleep.0.id();
        let begun = std::time::Instant::now();
        loop {
            let read_stack = |images: &Images<'_>| read(pid.cast_signed(), &[Some(pid)], images);
            let native = with_images(pid.cast_signed(), read_stack).remove(0);
            let has = |part: &str| native.frames.iter().any(|frame| frame.contains(part));
            let is_followed = has("nanosleep") && has("__libc_start_main");
            // it may have been loaded while it was read
            if native.system_call.as_deref() == Some("clock_nanosleep")
                && (is_followed || !unwind::IS_KNOWN)
            {
                break;
            }
            assert!(begun.elapsed().as_secs() < 30, "{native:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let spin = Ends(
            Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .spawn()
                .unwrap(),
        );
        let pid = spin.0.id();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert_eq!(
            with_images(pid.cast_signed(), |images| {
                read(pid.cast_signed(), &[Some(pid), None], images)
            }),
            [Native::default(), Native::default()]
        );
    }
}
