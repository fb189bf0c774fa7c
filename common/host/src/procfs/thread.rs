//! The files of a thread in /proc, which disappear with the thread.

use std::fs;

pub fn threads(pid: i32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// One short line; `None` if it cannot be read.
pub fn of_thread(pid: i32, tid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
