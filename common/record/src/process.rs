//! A process to start.

use crate::IpAddr;
use crate::cpus;
use crate::encoded::{edited, encode, unbase64};
use crate::error::Fault;
use crate::stacks::Member;
use crate::term;
use arrayvec::ArrayString;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::str::FromStr;

/// The role of a process in its job, which is also the name of its program: ranks, world size and
/// rendezvous count within a role.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A graph server of DGL.
    Server,
    /// A trainer of DGL.
    Trainer,
    /// A process of a program without a name, one on each host unless counted.
    #[default]
    Worker,
    /// A process of a program that dgl-env's --program names.
    #[serde(untagged)]
    Program(ProgramName),
}

impl Role {
    pub fn name(&self) -> &str {
        match self {
            Role::Server => "server",
            Role::Trainer => "trainer",
            Role::Worker => "worker",
            Role::Program(name) => &name.0,
        }
    }

    /// `2 trainers`, `3 store processes`.
    pub fn count(self, number: usize) -> String {
        match (self, number) {
            (Role::Program(name), 1) => format!("1 {} process", name.0),
            (Role::Program(name), _) => format!("{number} {} processes", name.0),
            (role, _) => term::count(number as u64, role.name()),
        }
    }

    /// The word before several ranks: `trainers`, but `store`.
    pub fn names(&self) -> String {
        match self {
            Role::Program(name) => name.0.as_str().to_owned(),
            role => format!("{}s", role.name()),
        }
    }

    /// DGL's own processes load a partitioned graph.
    pub fn is_dgl(self) -> bool {
        matches!(self, Role::Server | Role::Trainer)
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        Ok(match text {
            "server" => Role::Server,
            "trainer" => Role::Trainer,
            "worker" => Role::Worker,
            name => Role::Program(name.parse()?),
        })
    }
}

/// The limit in bytes: a longer tag before each line of output takes too much space.
const MAX_PROGRAM_NAME: usize = 24;

/// The name of a program: 1 to 24 lowercase letters, digits, dashes and underscores, beginning with
/// a letter. Messages, placeholders and names of logs contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("pattern" = "^[a-z][a-z0-9_-]{0,23}$")))]
#[serde(try_from = "String", into = "String")]
pub struct ProgramName(ArrayString<MAX_PROGRAM_NAME>);

impl FromStr for ProgramName {
    type Err = String;

    fn from_str(text: &str) -> Result<ProgramName, String> {
        let is_plain = text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
            });
        match ArrayString::from(text) {
            Ok(name) if is_plain => Ok(ProgramName(name)),
            _ => Err(format!(
                "{text:?} is not a program's name: a lowercase letter, then lowercase letters, \
                 digits, dashes and underscores, {MAX_PROGRAM_NAME} at most"
            )),
        }
    }
}

impl TryFrom<String> for ProgramName {
    type Error = String;

    fn try_from(text: String) -> Result<ProgramName, String> {
        text.parse()
    }
}

impl From<ProgramName> for String {
    fn from(name: ProgramName) -> String {
        name.0.as_str().to_owned()
    }
}

/// The variable in which torch's own launcher gives the number of its restarts.
const RESTART_COUNT: &str = "TORCHELASTIC_RESTART_COUNT";

/// The usual stand-in for the number of restarts of the job.
pub const ATTEMPT: &str = "{attempt}";

/// A process to start.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// The port on which a server will listen.
    pub port: Option<u16>,
    /// Whether the program serves the others: it is stopped when these have finished, and its
    /// earlier end is a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service: bool,
    /// The name of the persistent graph servers; the process is one of them or uses them.
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
    /// All words of the command in base64, if one is not UTF-8.
    pub argv_b64: Option<Vec<String>>,
    /// The command as shell text, in place of words.
    pub shell: Option<String>,
    /// The Python interpreter with which the command begins.
    pub python: Option<String>,
    /// The script that the Python runs, as the command names it, relative to `cwd`.
    pub script: Option<String>,
    /// The port of torch's rendezvous, if the process has one.
    pub master_port: Option<u16>,
    /// Further ports on the host of the program's first process, by the names that its command
    /// gives them.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, u16>,
    /// Whether `{attempt}` in its command, setup and environment stands for the number of restarts
    /// of the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attempt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Words(Vec<OsString>),
    Shell(String),
}

impl Process {
    /// The size of the set is still unknown.
    pub fn new(id: u32, host: u32, ip: IpAddr, role: Role, rank: u32) -> Process {
        Process {
            id,
            host,
            ip,
            role,
            rank,
            ..Process::default()
        }
    }

    pub fn member(&self) -> Member {
        (self.role, self.rank)
    }

    pub fn location(&self) -> String {
        format!("host {} {} {}", self.host, self.role.name(), self.rank)
    }

    /// Whether the process is ended when the others have ended.
    pub fn serves(&self) -> bool {
        self.service || self.role == Role::Server
    }

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

    /// Checks for exactly one command, and no NUL byte: the kernel ends a word there and a shell
    /// drops it, so another command would run.
    pub fn check(&self) -> Result<(), Fault> {
        let wrong = |field: &str, problem: &str| {
            Err(edited(
                format!("process record {}: {field}", self.id),
                problem,
            ))
        };
        if let Some(list) = &self.cpus
            && cpus::parse(list).is_none()
        {
            return wrong("cpus", &format!("{list:?} is not a list of processors"));
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
        let words = command.iter().map(|word| (field, word.as_os_str()));
        let environment = self.environment()?;
        let values = environment
            .iter()
            .map(|(_, value)| ("env", value.as_os_str()));
        match words
            .chain(texts)
            .chain(values)
            .find(|(_, text)| text.as_bytes().contains(&0))
        {
            Some((field, _)) => wrong(field, "has a NUL byte in it"),
            None => Ok(()),
        }
    }

    /// Sets `argv`, or `argv_b64` if a word is not UTF-8.
    pub fn set_words(&mut self, words: &[OsString]) {
        let text: Option<Vec<String>> = words
            .iter()
            .map(|word| word.to_str().map(str::to_owned))
            .collect();
        self.argv_b64 = match text {
            Some(_) => None,
            None => Some(words.iter().map(|word| encode(word)).collect()),
        };
        self.argv = text;
    }

    /// Sets torch's variable for this restart, and fills in its number.
    pub fn in_attempt(mut self, attempt: u32) -> Result<Process, Fault> {
        let number = attempt.to_string();
        if self.attempt {
            let filled = |text: &OsStr| replaced(text, ATTEMPT, &number);
            if let Command::Words(words) = self.command()? {
                self.set_words(&words.iter().map(|word| filled(word)).collect::<Vec<_>>());
            }
            self.setup = self.setup.map(|setup| setup.replace(ATTEMPT, &number));
            let variables: Vec<(String, OsString)> = self
                .environment()?
                .into_iter()
                .map(|(name, value)| (name.to_owned(), filled(&value)))
                .collect();
            for (name, value) in variables {
                self.set_env(&name, &value);
            }
        }
        if !self.env.contains_key(RESTART_COUNT) && !self.env_b64.contains_key(RESTART_COUNT) {
            self.set_env(RESTART_COUNT, number.as_ref());
        }
        Ok(self)
    }

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

fn replaced(text: &OsStr, what: &str, by: &str) -> OsString {
    let mut rest = text.as_bytes();
    let mut whole = Vec::with_capacity(rest.len());
    while let Some(offset) = find(rest, what.as_bytes()) {
        whole.extend_from_slice(&rest[..offset]);
        whole.extend_from_slice(by.as_bytes());
        rest = &rest[offset + what.len()..];
    }
    whole.extend_from_slice(rest);
    OsString::from_vec(whole)
}

/// `None` for an empty text.
fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len().max(1))
        .position(|window| window == what)
}

/// The same on the launching machine and on the process's host.
pub fn log_name(role: Role, rank: u32) -> String {
    format!("{}-{rank}.log", role.name())
}

pub fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !text.as_bytes()[0].is_ascii_digit()
}

/// Messages, paths and the environment can contain such a name unchanged.
pub fn is_job_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !text.starts_with(['-', '.'])
}

pub fn job_name(text: &str) -> Result<String, String> {
    if is_job_name(text) {
        Ok(text.to_owned())
    } else {
        Err("letters, digits, dots, dashes and underscores, 64 at most".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_one_of_dgl_or_the_name_of_a_program() {
        for (text, is_dgl) in [
            ("server", true),
            ("trainer", true),
            ("worker", false),
            ("graph_store-2", false),
        ] {
            let role: Role = text.parse().unwrap();
            assert_eq!((role.name(), role.is_dgl()), (text, is_dgl));
            let json = format!("{text:?}");
            assert_eq!(serde_json::to_string(&role).unwrap(), json);
            assert_eq!(serde_json::from_str::<Role>(&json).unwrap(), role);
        }
        for text in [
            "",
            "Store",
            "1st",
            "a b",
            "a.b",
            "a:b",
            "a234567890123456789012345",
        ] {
            assert!(text.parse::<Role>().is_err(), "{text}");
            assert!(
                serde_json::from_str::<Role>(&format!("{text:?}")).is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_process_knows_how_often_its_job_was_started_before() {
        let mut process = Process::new(0, 0, IpAddr([10, 0, 0, 1].into()), Role::Worker, 0);
        let odd = OsString::from_vec(b"\xff{attempt}".to_vec());
        process.set_words(&["run".into(), "--try={attempt}{attempt}".into(), odd]);
        process.set_env("LOG", "log.{attempt}".as_ref());
        process.setup = Some("echo {attempt}".to_owned());
        let plain = process.clone().in_attempt(2).unwrap();
        assert_eq!(
            plain.env["LOG"], "log.{attempt}",
            "it was not planned as a placeholder"
        );
        assert_eq!(plain.env["TORCHELASTIC_RESTART_COUNT"], "2");
        process.attempt = true;
        process.set_env("TORCHELASTIC_RESTART_COUNT", "own".as_ref());
        let filled = process.clone().in_attempt(2).unwrap();
        let words = [
            "run".into(),
            "--try=22".into(),
            OsString::from_vec(b"\xff2".to_vec()),
        ];
        assert_eq!(filled.command().unwrap(), Command::Words(words.to_vec()));
        assert_eq!(
            (filled.env["LOG"].as_str(), filled.setup.as_deref()),
            ("log.2", Some("echo 2"))
        );
        assert_eq!(filled.env["TORCHELASTIC_RESTART_COUNT"], "own");
    }

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
