//! A process to be started: its command, its host and its environment.

use crate::IpAddr;
use crate::cpus;
use crate::encoded::{edited, encode, unbase64};
use crate::error::Fault;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The role of a process in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A graph server.
    Server,
    /// A trainer, or under torchrun all trainers of a host.
    Trainer,
    /// A process without DGL's roles, one on each host.
    Worker,
}

impl Role {
    /// The name in records and on command lines: `server`.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Trainer => "trainer",
            Role::Worker => "worker",
        }
    }
}

/// A process to be started.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// The number of this record in its set: 0 to `of` - 1.
    pub id: u32,
    /// How many records the set has.
    pub of: u32,
    /// The `id` of the host that it runs on.
    pub host: u32,
    /// The address of that host.
    pub ip: IpAddr,
    /// The role of the process in its job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// How many trainers this process starts, if it is torchrun.
    pub nproc: Option<u32>,
    /// The port that a server will listen on.
    pub port: Option<u16>,
    /// The name of the graph servers that stay; the process is one of them or uses them.
    pub server_name: Option<String>,
    /// The working directory.
    pub cwd: Option<String>,
    /// The processors on which it may run, as `0-3,8`; absent if it may run on all.
    pub cpus: Option<String>,
    /// Environment variables that are added to those of the login.
    #[serde(default)]
    pub env: IndexMap<String, String>,
    /// Environment variables whose values are not UTF-8, in base64.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env_b64: IndexMap<String, String>,
    /// Shell text that runs before the command, in the same shell.
    pub setup: Option<String>,
    /// The command's words.
    pub argv: Option<Vec<String>>,
    /// All words of the command in base64, where one is not UTF-8.
    pub argv_b64: Option<Vec<String>>,
    /// The command as shell text, in place of words.
    pub shell: Option<String>,
    /// The Python interpreter with which the command begins.
    pub python: Option<String>,
    /// The script that the Python runs, as the command names it, relative to `cwd`.
    pub script: Option<String>,
    /// The port of torch's rendezvous, where the process has one.
    pub master_port: Option<u16>,
}

/// The command of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Words that are executed without a shell.
    Words(Vec<OsString>),
    /// Shell text of the user.
    Shell(String),
}

impl Process {
    /// A process with its role and place in the job alone, in a set that is not counted yet.
    pub fn new(id: u32, host: u32, ip: IpAddr, role: Role, rank: u32) -> Process {
        Process {
            id,
            of: 0,
            host,
            ip,
            role,
            rank,
            nproc: None,
            port: None,
            server_name: None,
            cwd: None,
            cpus: None,
            env: IndexMap::new(),
            env_b64: IndexMap::new(),
            setup: None,
            argv: None,
            argv_b64: None,
            shell: None,
            python: None,
            script: None,
            master_port: None,
        }
    }

    /// The process in messages: `host 1 server 2`.
    pub fn location(&self) -> String {
        format!("host {} {} {}", self.host, self.role.name(), self.rank)
    }

    /// The command, from whichever field holds it.
    pub fn command(&self) -> Result<Command, Fault> {
        let record = || format!("process record {}", self.id);
        match (&self.argv, &self.argv_b64, &self.shell) {
            (Some(words), None, None) if !words.is_empty() => {
                Ok(Command::Words(words.iter().map(OsString::from).collect()))
            }
            (None, Some(words), None) if !words.is_empty() => {
                let words: Result<Vec<_>, _> = words
                    .iter()
                    .map(|word| unbase64(&record(), "argv_b64", word))
                    .collect();
                Ok(Command::Words(words?))
            }
            (None, None, Some(text)) => Ok(Command::Shell(text.clone())),
            _ => Err(edited(
                record(),
                "needs one of argv, argv_b64 and shell, and not empty",
            )),
        }
    }

    /// Checks what can be known before the start: that there is exactly one command, and that no
    /// text contains a NUL byte. The kernel ends a word there and a shell leaves it out, so
    /// something else than was written would run.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(list) = &self.cpus
            && cpus::parse(list).is_none()
        {
            let problem = format!("{list:?} is not a list of processors");
            return Err(edited(
                format!("process record {}: cpus", self.id),
                &problem,
            ));
        }
        let command = match self.command()? {
            Command::Words(words) => words,
            Command::Shell(text) => vec![text.into()],
        };
        let field = if self.shell.is_some() {
            "shell"
        } else {
            "argv"
        };
        let texts = [
            ("cwd", &self.cwd),
            ("setup", &self.setup),
            ("server_name", &self.server_name),
        ];
        let texts = texts
            .into_iter()
            .filter_map(|(field, text)| Some((field, OsStr::new(text.as_ref()?))));
        let environment = self.environment()?;
        let words = command.iter().map(|word| (field, word.as_os_str()));
        let values = environment
            .iter()
            .map(|(_, value)| ("env", value.as_os_str()));
        match words
            .chain(texts)
            .chain(values)
            .find(|(_, text)| text.as_bytes().contains(&0))
        {
            Some((field, _)) => Err(edited(
                format!("process record {}: {field}", self.id),
                "has a NUL byte in it",
            )),
            None => Ok(()),
        }
    }

    /// Sets the command's words, in the field that can hold them.
    pub fn set_words(&mut self, words: &[OsString]) {
        let text: Option<Vec<String>> = words
            .iter()
            .map(|word| word.to_str().map(str::to_owned))
            .collect();
        match text {
            Some(words) => self.argv = Some(words),
            None => self.argv_b64 = Some(words.iter().map(|word| encode(word)).collect()),
        }
    }

    /// Adds an environment variable, in the field that can hold it.
    pub fn set_env(&mut self, name: &str, value: &OsStr) {
        match value.to_str() {
            Some(text) => {
                self.env_b64.shift_remove(name);
                self.env.insert(name.to_owned(), text.to_owned())
            }
            None => {
                self.env.shift_remove(name);
                self.env_b64.insert(name.to_owned(), encode(value))
            }
        };
    }

    /// The whole environment, decoded.
    pub fn environment(&self) -> Result<Vec<(&str, OsString)>, Fault> {
        let record = format!("process record {}", self.id);
        let plain = self
            .env
            .iter()
            .map(|(name, value)| Ok((name.as_str(), OsString::from(value))));
        let encoded = self
            .env_b64
            .iter()
            .map(|(name, value)| Ok((name.as_str(), unbase64(&record, "env_b64", value)?)));
        plain.chain(encoded).collect()
    }
}

/// Whether a text is a job's name: one that can stand in messages, paths and the environment
/// unchanged.
pub fn is_job_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with(['-', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_jobs() {
        for name in ["try7", "a.b-c_D"] {
            assert!(is_job_name(name), "{name}");
        }
        let long = "x".repeat(65);
        for name in ["", "a b", "a\u{1b}[2J", "..", "a/b", "-x", &long] {
            assert!(!is_job_name(name), "{name}");
        }
    }
}
