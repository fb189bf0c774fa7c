//! What is asked of a host, and what its answer means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::quote;
use common::record::{Found, Reaped};
use common::remote::JOB_SH;
use std::time::Duration;

const HOST_SH: &str = include_str!("host.sh");
/// A command is shown up to here.
const COMMAND_CHARS: usize = 200;

/// What to do.
pub enum What<'a> {
    /// Show all.
    List,
    /// End one job.
    Job(&'a str),
    /// End all.
    All,
}

/// The script, the same for every host.
pub fn script(what: &What<'_>, grace: Duration) -> Vec<u8> {
    let (verb, job) = match what {
        What::List => ("list", ""),
        What::Job(name) => ("job", *name),
        What::All => ("all", ""),
    };
    let grace = grace.as_millis().div_ceil(1000);
    let mut text = format!("what={verb} grace={grace} wanted=").into_bytes();
    text.extend(quote::sh(job));
    text.push(b'\n');
    text.extend_from_slice(JOB_SH.as_bytes());
    text.extend_from_slice(HOST_SH.as_bytes());
    text
}

/// A line of the script.
#[derive(Debug)]
pub enum Said {
    /// A process of a job.
    Found(Found),
    /// A job was ended.
    Reaped(Reaped),
}

/// Reads a line; `None` for what is none of the script's.
pub fn said(host: u32, line: &str) -> Option<Said> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["found", pid, age, rss, job, role, rank, server, command] => {
            let (role, rank) = role_of(&text(role)?, &text(rank)?, &text(server)?);
            let command = text(command)?.trim_end().chars().take(COMMAND_CHARS).collect();
            let (pid, age_s, rss_bytes) = (pid.parse().ok()?, age.parse().unwrap_or(0), rss.parse().unwrap_or(0));
            Some(Said::Found(Found { host, job: text(job)?, pid, role: role.map(str::to_owned), rank, age_s, rss_bytes, command }))
        }
        ["reaped", job, processes, shm, left] => {
            let left = text(left)?;
            let left = left.trim();
            let error = (!left.is_empty()).then(|| format!("could not be ended: process {}", left.replace(' ', ", ")));
            let (processes, shm_files) = (processes.parse().ok()?, shm.parse().unwrap_or(0));
            Some(Said::Reaped(Reaped { host, job: text(job)?, ok: error.is_none(), processes, shm_files, error }))
        }
        _ => None,
    }
}

/// `:` and base64.
fn text(word: &str) -> Option<String> {
    let bytes = BASE64.decode(word.strip_prefix(':')?).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Role and rank from DGL_ROLE, RANK and DGL_SERVER_ID.
fn role_of(role: &str, rank: &str, server: &str) -> (Option<&'static str>, Option<u32>) {
    match role {
        "server" => (Some("server"), server.parse().ok()),
        "client" => (Some("trainer"), rank.parse().ok()),
        _ if !rank.is_empty() => (Some("worker"), rank.parse().ok()),
        _ => (None, None),
    }
}

/// One record a job: a name may have been used twice.
pub fn merged(all: Vec<Reaped>) -> Vec<Reaped> {
    let mut merged: Vec<Reaped> = Vec::new();
    for one in all {
        match merged.iter_mut().find(|other| other.host == one.host && other.job == one.job) {
            Some(other) => {
                other.ok &= one.ok;
                other.processes += one.processes;
                other.shm_files += one.shm_files;
                other.error = other.error.take().or(one.error);
            }
            None => merged.push(one),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles() {
        let table = [
            (("server", "", "3"), (Some("server"), Some(3))),
            (("client", "1", ""), (Some("trainer"), Some(1))),
            (("client", "", ""), (Some("trainer"), None)),
            (("", "2", ""), (Some("worker"), Some(2))),
            (("", "", ""), (None, None)),
        ];
        for ((role, rank, server), wanted) in table {
            assert_eq!(role_of(role, rank, server), wanted);
        }
    }

    #[test]
    fn lines() {
        let b64 = |text: &str| format!(":{}", BASE64.encode(text));
        let found = format!("found 7 5 4096 {} {} {} : {}", b64("a"), b64("client"), b64("1"), b64(&"x ".repeat(300)));
        assert!(
            matches!(said(2, &found), Some(Said::Found(Found { host: 2, pid: 7, rank: Some(1), ref command, .. })) if command.len() == 200)
        );
        let reaped = |left: &str| said(0, &format!("reaped {} 2 1 {}", b64("a"), b64(left)));
        assert!(matches!(reaped(""), Some(Said::Reaped(Reaped { ok: true, processes: 2, shm_files: 1, error: None, .. }))));
        assert!(matches!(reaped("4 5 "), Some(Said::Reaped(Reaped { ok: false, error: Some(ref e), .. })) if e.ends_with("process 4, 5")));
        assert!(said(0, "motd").is_none());
    }
}
