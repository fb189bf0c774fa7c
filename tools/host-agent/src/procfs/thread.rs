//! The files of one thread in /proc. What has ended has none.

use super::field::number_of;
use std::fs;

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// A file of a thread that has one short line; also `None` where it may not be read.
pub fn of_thread(pid: i32, tid: u32, file: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// How often a thread has given up its processor, or had to. One that has rested between two looks
/// has the same count.
pub fn switches(pid: i32, tid: u32) -> Option<u64> {
    parse_switches(&of_thread(pid, tid, "status")?)
}

fn parse_switches(text: &str) -> Option<u64> {
    let voluntary = number_of(text, "voluntary_ctxt_switches:")?;
    voluntary.checked_add(number_of(text, "nonvoluntary_ctxt_switches:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_often_a_thread_was_put_aside() {
        let text = "Name:\ta\nvoluntary_ctxt_switches:\t41\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(parse_switches(text), Some(43));
        assert_eq!(parse_switches("Name:\ta\n"), None);
        let own = std::process::id().cast_signed();
        assert!(threads(own).len() > 1, "a test runs in a thread of its own");
        assert!(switches(own, own.cast_unsigned()).is_some());
        assert_eq!(switches(own, 0), None);
    }
}
