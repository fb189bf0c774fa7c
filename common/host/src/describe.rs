//! Describes users and processes in messages.

use crate::processes::JOB;
use crate::procfs;
use record::term;
use std::fs;
use wire::preflight::Holder;

/// How many characters of a command line are shown.
const COMMAND_SHOWN: usize = 60;

/// `None` if this process runs as that user.
pub fn other_user(uid: u32) -> Option<String> {
    (uid != nix::unistd::geteuid().as_raw()).then(|| user_name(uid))
}

/// The number if /etc/passwd lacks the name. The C library's function would load modules of the
/// host into this static executable.
pub fn user_name(uid: u32) -> String {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    name_in(&passwd, uid).unwrap_or_else(|| uid.to_string())
}

fn name_in(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string() && !name.is_empty()).then(|| name.to_owned())
    })
}

/// A process as far as it is visible, as `process 12 (python3 train.py) of job a`; `uid` is its
/// user.
pub fn holder(pid: Option<i32>, uid: u32) -> (Holder, String) {
    let (job, user) = (
        pid.and_then(|pid| procfs::environment(pid)?.text(JOB)),
        other_user(uid),
    );
    let holder = match (&job, &user) {
        _ if pid.is_none() => Holder::Hidden,
        (None, _) => Holder::Process,
        (Some(_), None) => Holder::Job,
        (Some(_), Some(_)) => Holder::ForeignJob,
    };
    let mut words = match pid {
        None if user.is_none() => "a hidden process, perhaps in a container".to_owned(),
        None => "a process".to_owned(),
        Some(pid) => format!("process {pid}"),
    };
    let parts = [
        (" (", pid.and_then(command), ")"),
        (" of job ", job, ""),
        (" of user ", user, ""),
    ];
    for (before, part, behind) in parts {
        words.extend(part.map(|part| format!("{before}{part}{behind}")));
    }
    (holder, words)
}

/// Without the directory of its first word; the process's name if it has none.
pub fn command(pid: i32) -> Option<String> {
    let line = procfs::command_line(pid).unwrap_or_default();
    let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let shown_line = shown(&format!(
        "{} {rest}",
        first.rsplit('/').next().unwrap_or(first)
    ));
    shown_line.or_else(|| shown(&fs::read_to_string(format!("/proc/{pid}/comm")).ok()?))
}

/// `None` if the line is empty.
fn shown(line: &str) -> Option<String> {
    let line = line.replace(|c: char| c.is_control(), " ");
    Some(term::cut(line.trim(), COMMAND_SHOWN)).filter(|cut| !cut.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names() {
        let passwd =
            "root:x:0:0:root:/root:/bin/bash\nguest:x:1000:100::/home/guest:/bin/sh\nbroken\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("guest"));
        assert_eq!(name_in(passwd, 100), None);
    }

    #[test]
    fn commands_are_cut_for_people() {
        let table = [
            (
                "python3 -u code/train.py ",
                Some("python3 -u code/train.py"),
            ),
            ("sh -c a\u{1b}[2J b", Some("sh -c a [2J b")),
            ("kworker/0:1\n", Some("kworker/0:1")),
            (" ", None),
            ("", None),
        ];
        for (line, expected) in table {
            assert_eq!(shown(line).as_deref(), expected);
        }
        let long = shown(&"x".repeat(100)).unwrap();
        assert_eq!(long.chars().count(), COMMAND_SHOWN);
    }
}
