//! What happens to a job while it runs, and how it ends.

use crate::error::Fault;
use crate::exit::{Exit, ProcessEnd};
use crate::{Culprit, Role};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// A process has started.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Started {
    /// The `id` of the process record.
    pub id: u32,
    /// The `id` of the host.
    pub host: u32,
    /// The role of the process in its job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// The process id on that host.
    pub pid: u32,
    /// When this happened, in milliseconds since 1970.
    pub time_ms: u64,
}

/// A server listens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Listening {
    /// The `id` of the process record.
    pub id: u32,
    /// The `id` of the host.
    pub host: u32,
    /// The role of the process in its job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// The port on which the server listens.
    pub port: u16,
    /// When this happened, in milliseconds since 1970.
    pub time_ms: u64,
}

/// A line that a process wrote.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Output {
    /// The `id` of the process record.
    pub id: u32,
    /// The stream it was written to: `stdout` or `stderr`.
    pub stream: String,
    /// The line without its line end.
    pub line: String,
    /// When this happened, in milliseconds since 1970.
    pub time_ms: u64,
    /// Whether this is a piece of a line, because its end had not arrived yet or it is longer than
    /// 64 KiB. The next record of this stream continues it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// Whether the line was not UTF-8; U+FFFD replaces bytes that could not be decoded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
    /// Whether the end of the job had begun before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_ending: bool,
}

/// Records that were not written because the reader was too slow.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Dropped {
    /// How many output records were dropped, and stacks and records of stalls.
    pub lines: u64,
    /// When this happened, in milliseconds since 1970.
    pub time_ms: u64,
}

/// A process ended.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exited {
    /// The `id` of the process record.
    pub id: u32,
    /// The `id` of the host.
    pub host: u32,
    /// The role of the process in its job.
    pub role: Role,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// How the process ended.
    #[serde(flatten)]
    pub end: ProcessEnd,
    /// Milliseconds since the process was started.
    pub elapsed_ms: u64,
    /// Seconds of CPU time, of the process and of the children that it waited for.
    pub cpu_s: Option<f64>,
    /// The largest resident memory, in bytes, of the process or of any child that it waited for.
    pub max_rss_bytes: Option<u64>,
    /// If KILL ended it: whether its host had sent that before, to end the job. dgl-tools 0.4 did
    /// not record it.
    pub kill_sent: Option<bool>,
    /// Whether this happened during shutdown, and is not a failure of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub while_ending: bool,
}

/// How a tool that acts on a job ended; its last record.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Whether the tool succeeded.
    pub ok: bool,
    /// The tool's exit status.
    pub code: u8,
    /// What determined `code`: `input`, `preflight`, `host`, `process`, `timeout`,
    /// `stalled`, `servers`, `paused` or `signal`.
    pub cause: Option<String>,
    /// The cause in words, if neither a process nor a host of the job has failed.
    pub reason: Option<String>,
    /// The failure that arrived first. The verdict may name another one, which caused it.
    pub first_failure: Option<FirstFailure>,
    /// The first 40 faults that dgl-spawn reported on stderr, such as those that the preflight
    /// found, or dgl-stacks if it found no job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Milliseconds from the start of the tool to its end.
    pub elapsed_ms: u64,
    /// The job's name.
    pub job: Option<String>,
    /// The tool, if it only asked hosts and this is not the end of a job.
    pub tool: Option<String>,
}

impl Summary {
    pub fn of_questions(tool: &str, exit: Exit, elapsed_ms: u64, job: Option<String>) -> Summary {
        let cause = match exit {
            Exit::Done => None,
            Exit::ItemFailed => Some("process".to_owned()),
            _ => Some("host".to_owned()),
        };
        Summary {
            ok: exit == Exit::Done,
            code: exit.code(),
            cause,
            elapsed_ms,
            job,
            tool: Some(tool.to_owned()),
            ..Summary::default()
        }
    }
}

/// Why a job ended, as judged by dgl-spawn and dgl-why.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The outcome in words: `ended well`, `failed`.
    pub outcome: String,
    /// The cause, in a sentence without its full stop.
    pub cause: String,
    /// The process or host that failed first or for which the others wait, if the records show it.
    pub culprit: Option<Culprit>,
    /// When it began, in milliseconds since 1970.
    pub since_ms: Option<u64>,
    /// The records that show it, each as a line of the stream, truncated to 240 characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The name of the advice, which is the same for all messages with this remedy.
    pub advice: Option<String>,
    /// What to do, in a sentence without its full stop.
    pub fix: Option<String>,
}

/// What failed first in a job.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FirstFailure {
    /// The `id` of the host.
    pub host: u32,
    /// The `id` of the process record, if a process failed.
    pub id: Option<u32>,
    /// The role of the process in its job.
    pub role: Option<Role>,
    /// The number of the process among those of its role, on all hosts.
    pub rank: Option<u32>,
    /// How the process ended; neither a status nor a signal if it did not.
    #[serde(flatten)]
    pub end: ProcessEnd,
    /// Why the host was lost, or that the server did not listen in time; in words.
    pub error: Option<String>,
    /// The last lines that the process wrote.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

impl FirstFailure {
    /// Follows the name of the process or host.
    pub fn words(&self) -> String {
        match &self.error {
            Some(error) => error.clone(),
            None => self.end.to_string(),
        }
    }
}
