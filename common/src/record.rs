//! Every record of the stream. dgl-tools(7) describes them for users.
//!
//! Names are for good: a field is added, never renamed or given another meaning; a changed meaning
//! is a new type. No integer goes beyond 2^53, because jq would change it.

use crate::error::Fault;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A line of the stream: its `type` and, in Rust, its fields.
pub trait Record: Serialize {
    /// The value of `type`.
    const TYPE: &'static str;
}

macro_rules! records {
    ($($name:literal $record:ty),* $(,)?) => {
        $(impl Record for $record { const TYPE: &'static str = $name; })*
        /// The types that are known here.
        pub const TYPES: &[&str] = &[$($name),*];
    };
}
records! {
    "host" Host, "graph" Graph, "file" FileCopy, "pushed" Pushed, "pulled" Pulled,
    "process" Process, "started" Started, "listening" Listening,
    "output" Output, "dropped" Dropped, "exited" Exited, "found" Found, "reaped" Reaped,
    "summary" Summary,
}

/// A machine of the job; host k holds partition k.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    /// 0..of-1, in the order of ip_config.
    pub id: u32,
    /// How many there are.
    pub of: u32,
    /// The address that DGL uses.
    pub ip: IpAddr,
    /// The port of its first graph server.
    pub port: u16,
    /// The line of ip_config it stands in, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The name that was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where to log in, if not at `name` or `ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// What host-probe found.
    #[serde(flatten)]
    pub facts: Facts,
    /// `false` where host-probe failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Host {
    /// The name ssh is given: `login`, else `name`, else `ip`.
    pub fn target(&self) -> String {
        self.login
            .clone()
            .or_else(|| self.name.clone())
            .unwrap_or_else(|| self.ip.to_string())
    }

    /// For messages: `host 2 (10.0.0.7)`.
    pub fn place(&self) -> String {
        match &self.name {
            Some(name) => format!("host {} ({name}, {})", self.id, self.ip),
            None => format!("host {} ({})", self.id, self.ip),
        }
    }
}

/// An IPv4 address; 0.0.0.0 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IpAddr(pub Ipv4Addr);

impl Default for IpAddr {
    fn default() -> IpAddr {
        IpAddr(Ipv4Addr::UNSPECIFIED)
    }
}

impl std::fmt::Display for IpAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What host-probe adds to a host record. A fact that could not be had is left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The network card that holds `ip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iface: Option<String>,
    /// Processors online.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Main memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_bytes: Option<u64>,
    /// Room in /dev/shm, where graph servers keep their data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm_free_bytes: Option<u64>,
    /// Room where the workspace is or will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// NVIDIA cards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// The hard limit on open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
    /// A port on which nothing listens, for torch's rendezvous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u16>,
    /// The user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The kind of file system of the workspace: `ext4`, `nfs4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_fs: Option<String>,
    /// Python: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// The interpreter's own path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub python_path: Option<String>,
    /// The folder of the environment that was asked for, a venv's or conda's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What conda calls it, where it is conda's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conda_env: Option<String>,
    /// PATH there, without that environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// DGL: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dgl: Option<String>,
    /// PyTorch: its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
}

/// The partitioned graph and where it will lie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Graph {
    /// Its name in the partition config.
    pub graph_name: String,
    /// Partitions; as many as hosts.
    pub num_parts: u32,
    /// File records in the stream.
    pub files: u32,
    /// The folder of the job on every host, absolute.
    pub workspace: String,
    /// The partition config, relative to the workspace.
    pub part_config: String,
    /// The ip_config, relative to the workspace.
    pub ip_config: String,
}

/// A file and where it goes. It was found here (`src`) or is made (`content`). With neither it must
/// be there already, as the parts are that the distributed partitioning pipeline left on their
/// hosts: part-push looks whether it is, and sends nothing. A `dst` that ends in `/` is an empty
/// folder.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileCopy {
    /// 0..of-1.
    pub id: u32,
    /// How many there are.
    pub of: u32,
    /// The host it goes to; without it, every host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<u32>,
    /// config ip_config partition map script extra.
    pub kind: String,
    /// The file here, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// The same where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_b64: Option<String>,
    /// The text of a file that is made, not found, in place of `src`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The file there, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// The same where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_b64: Option<String>,
    /// Its size; 0 where it must be there already, which is not known here.
    pub bytes: u64,
    /// When it was last changed: seconds since 1970; not for one that is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_s: Option<i64>,
    /// And nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtime_nsec: Option<u32>,
    /// Permission bits, as a decimal number: 420 is 0644.
    pub mode: u32,
}

impl FileCopy {
    /// Whether it is an empty folder that is made.
    pub fn is_folder(&self) -> Result<bool, Fault> {
        Ok(self.destination()?.as_os_str().as_bytes().ends_with(b"/"))
    }

    /// The file here, if it was found and not made.
    pub fn source(&self) -> Result<Option<PathBuf>, Fault> {
        self.path_of("src", &self.src, &self.src_b64)
    }

    fn place(&self) -> String {
        format!("file record {}", self.id)
    }

    fn path_of(
        &self,
        field: &str,
        text: &Option<String>,
        encoded: &Option<String>,
    ) -> Result<Option<PathBuf>, Fault> {
        match (text, encoded) {
            (Some(path), _) => Ok(Some(PathBuf::from(path))),
            (None, Some(path)) => Ok(Some(PathBuf::from(unbase64(
                &self.place(),
                &format!("{field}_b64"),
                path,
            )?))),
            (None, None) => Ok(None),
        }
    }

    /// The file there.
    pub fn destination(&self) -> Result<PathBuf, Fault> {
        let missing = || edited(self.place(), "has neither dst nor dst_b64");
        self.path_of("dst", &self.dst, &self.dst_b64)?
            .ok_or_else(missing)
    }
}

/// A delivery: one file to one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pushed {
    /// 0..of-1, a set of its own.
    pub id: u32,
    /// How many deliveries.
    pub of: u32,
    /// The file's id.
    pub file: u32,
    /// The host's id.
    pub host: u32,
    /// Whether the whole file is there.
    pub ok: bool,
    /// The file's size.
    pub bytes: u64,
    /// What went over the wire for it.
    pub sent_bytes: u64,
    /// It was there already.
    pub skipped: bool,
    /// From the beginning of its sending to the host's word that it is there.
    pub elapsed_ms: u64,
    /// Why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A file that was brought from a host; or, without a file, a host that gave none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Pulled {
    /// 0..of-1, where there is a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// How many files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u32>,
    /// The host's id.
    pub host: u32,
    /// The file there, relative to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<String>,
    /// The same where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src_b64: Option<String>,
    /// The file here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<String>,
    /// The same where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst_b64: Option<String>,
    /// Whether the whole file is here.
    pub ok: bool,
    /// The file's size.
    pub bytes: u64,
    /// What came over the wire for it.
    pub received_bytes: u64,
    /// It was here already.
    pub skipped: bool,
    /// Why it is not here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a process does in the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A graph server.
    Server,
    /// A trainer, or under torchrun all trainers of a host.
    Trainer,
    /// A plain process, one a host.
    Worker,
}

impl Role {
    /// As records and users write it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Trainer => "trainer",
            Role::Worker => "worker",
        }
    }
}

/// A process to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Process {
    /// 0..of-1.
    pub id: u32,
    /// How many there are.
    pub of: u32,
    /// The host it runs on.
    pub host: u32,
    /// That host's address.
    pub ip: IpAddr,
    /// What it does.
    pub role: Role,
    /// Its number among those of its role.
    pub rank: u32,
    /// Under torchrun: the trainers this one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nproc: Option<u32>,
    /// The port that a server will listen on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The name of the graph servers that stay, of which it is one or which it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Where it is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment that is added.
    #[serde(default)]
    pub env: IndexMap<String, String>,
    /// Values that are not UTF-8.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub env_b64: IndexMap<String, String>,
    /// Shell text that comes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// The command's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// All of its words, where one is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv_b64: Option<Vec<String>>,
    /// The command as shell text, in place of words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
}

/// What a process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Words, exec'd.
    Words(Vec<OsString>),
    /// The user's shell text.
    Shell(String),
}

impl Process {
    /// For messages: `host 1 server 2`.
    pub fn place(&self) -> String {
        format!("host {} {} {}", self.host, self.role.name(), self.rank)
    }

    /// What it runs.
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

    /// What can be told of it before it is started: it has one command, and no text with a NUL
    /// byte, which ends a word for the kernel and is left out by a shell, so that something else
    /// would run than what was written.
    pub fn check(&self) -> Result<(), Fault> {
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

    /// The command's words, in the field that can hold them.
    pub fn set_words(&mut self, words: &[OsString]) {
        let text: Option<Vec<String>> = words
            .iter()
            .map(|word| word.to_str().map(str::to_owned))
            .collect();
        match text {
            Some(words) => self.argv = Some(words),
            None => {
                self.argv_b64 = Some(
                    words
                        .iter()
                        .map(|word| BASE64.encode(word.as_bytes()))
                        .collect(),
                )
            }
        }
    }

    /// Adds a variable, in the field that can hold it.
    pub fn set_env(&mut self, name: &str, value: &OsStr) {
        match value.to_str() {
            Some(text) => {
                self.env_b64.shift_remove(name);
                self.env.insert(name.to_owned(), text.to_owned())
            }
            None => {
                self.env.shift_remove(name);
                self.env_b64
                    .insert(name.to_owned(), BASE64.encode(value.as_bytes()))
            }
        };
    }

    /// All of its environment.
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

/// A process runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// The process record's id.
    pub id: u32,
    /// Its host.
    pub host: u32,
    /// What it does.
    pub role: Role,
    /// Its number among those of its role.
    pub rank: u32,
    /// Its process id there.
    pub pid: u32,
    /// Since 1970.
    pub time_ms: u64,
}

/// A server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// The process record's id.
    pub id: u32,
    /// Its host.
    pub host: u32,
    /// What it does.
    pub role: Role,
    /// Its number among those of its role.
    pub rank: u32,
    /// The port.
    pub port: u16,
    /// Since 1970.
    pub time_ms: u64,
}

/// A line that a process wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// The process record's id.
    pub id: u32,
    /// stdout or stderr.
    pub stream: String,
    /// Without its end.
    pub line: String,
    /// Since 1970.
    pub time_ms: u64,
    /// A piece of a line whose end had not come, or of one over 64 KiB; the next one goes on with
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// It was not UTF-8; what could not be read is U+FFFD.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
    /// The end of the job had begun before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_ending: bool,
}

/// Records that a slow reader did not get.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// How many output records.
    pub lines: u64,
    /// Since 1970.
    pub time_ms: u64,
}

/// A process ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exited {
    /// The process record's id.
    pub id: u32,
    /// Its host.
    pub host: u32,
    /// What it did.
    pub role: Role,
    /// Its number among those of its role.
    pub rank: u32,
    /// Its status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// or the signal that ended it: `KILL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Since it was started.
    pub elapsed_ms: u64,
    /// Seconds of processor time, of the process and of the children that it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
    /// The most main memory that it, or the largest of those children, had at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<u64>,
    /// The kernel killed it because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom: bool,
    /// The end of the job had begun before: this is no failure of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_ending: bool,
}

/// A process of a job, found on a host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The host.
    pub host: u32,
    /// The job's name.
    pub job: String,
    /// Its process id there.
    pub pid: u32,
    /// server, trainer, worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its number among those of its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How long it has run.
    pub age_s: u64,
    /// Processor time that it has taken.
    #[serde(default)]
    pub cpu_s: f64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// What of that is shared memory, which the processes of a job map together.
    #[serde(default)]
    pub shm_bytes: u64,
    /// Ports on which it listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// Of graph servers that stay, on the first host: how many groups of trainers have used them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Its command, cut at 200 characters.
    pub command: String,
}

/// A job was ended on a host, or signalled, or shared memory that nobody uses was removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// The host.
    pub host: u32,
    /// The job's name; empty for shared memory of which nobody knows the job.
    pub job: String,
    /// The signal that was sent, in place of ending the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Nothing of it is left.
    pub ok: bool,
    /// Processes that were ended or signalled.
    pub processes: u32,
    /// Files removed from /dev/shm.
    pub shm_files: u32,
    /// Folders removed of jobs that were left and have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub folders: u32,
    /// What could not be ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How it all ended; the last record of a tool that acts on a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// All went well.
    pub ok: bool,
    /// The tool's exit status.
    pub code: u8,
    /// Whose it is: input preflight host process timeout signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What failed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_failure: Option<FirstFailure>,
    /// From the tool's start to its end.
    pub elapsed_ms: u64,
    /// The job's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// What failed first in a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFailure {
    /// The host.
    pub host: u32,
    /// The process record's id, where a process failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Its number among those of its role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// or the signal that ended it,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// or what happened to its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The kernel killed it because memory ran out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oom: bool,
    /// dgl-reap sent the signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reaped: bool,
    /// The last lines that it wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

/// A path as the two fields that stand for it: as text, or in base64 where it is not UTF-8.
pub fn path_fields(path: &Path) -> (Option<String>, Option<String>) {
    match path.to_str() {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(BASE64.encode(path.as_os_str().as_bytes()))),
    }
}

fn unbase64(record: &str, field: &str, text: &str) -> Result<OsString, Fault> {
    let bytes = BASE64.decode(text).map_err(|error| {
        edited(
            format!("{record}: {field}"),
            format!("is not base64: {error}"),
        )
    })?;
    Ok(OsString::from_vec(bytes))
}

/// A record that no tool writes so.
fn edited(place: impl Into<String>, problem: impl Into<String>) -> Fault {
    Fault::data(place, problem)
        .fix("correct what was edited, as dgl-tools(7) has it, or make the stream anew")
}
