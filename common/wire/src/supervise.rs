//! The processes of a job while they live: start, output, end.
//!
//! [`Start`] follows the job and its processes, and is answered by events until [`Over`]. While
//! processes run, both sides send `alive` at a fixed interval, so that silence means loss.

use crate::ending::Ending;
use crate::stacks::frames;
use crate::text::message;
use record::Sign;
use record::exit::ProcessEnd;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Variables of every process; those of its record take precedence.
    pub env: Vec<(String, crate::Text)>,
    /// For persistent graph servers: their name, and the settings that trainers must share. The
    /// trainers map their shared memory, and may end a moment after them.
    pub serves: Option<Box<crate::servers::Find>>,
    /// The persistent graph servers that the processes use.
    /// [`Event::ServersEnded`](crate::Event::ServersEnded) reports their end.
    pub uses: Option<crate::servers::ServersOnHost>,
    /// The stall timeout in milliseconds; 0 without detection of stalls.
    /// [`Event::Activity`](crate::Event::Activity) is sent more often.
    pub stall_ms: u64,
    /// Whether to report an uncaught exception as soon as the stack shows that the process has left
    /// its script.
    pub fail_on_exception: bool,
}

/// TERM, and KILL for processes that remain after the grace time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// From TERM to KILL, in milliseconds.
    pub grace_ms: u64,
    /// Whether ABRT comes first, so that Python prints its stacks (PYTHONFAULTHANDLER).
    #[serde(default)]
    pub stacks: bool,
    /// Why the job ends, according to the launcher or agent that decided it.
    #[serde(default)]
    pub ending: Ending,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub index: u32,
    pub pid: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    pub index: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessStream {
    Stdout,
    Stderr,
}

/// Bytes that a process wrote. They follow the line unchanged, and need not be whole lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub index: u32,
    pub stream: ProcessStream,
}

/// Every process has closed this stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    pub index: u32,
    pub stream: ProcessStream,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exited {
    pub index: u32,
    #[serde(flatten)]
    pub end: ProcessEnd,
    /// CPU time of the process and the children that it waited for, in seconds.
    pub cpu_s: f64,
    /// The largest resident memory of the process or any child that it waited for.
    pub max_rss_bytes: u64,
    /// If KILL ended it: whether the supervisor had sent that before, to end the job.
    pub kill_sent: Option<bool>,
    /// Whether dgl-reap is ending the whole job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job_reaped: bool,
}

impl Exited {
    pub fn new(index: u32, end: ProcessEnd) -> Exited {
        Exited {
            index,
            end,
            cpu_s: 0.0,
            max_rss_bytes: 0,
            kill_sent: None,
            job_reaped: false,
        }
    }
}

/// For how long the job's processes have shown no activity: output, CPU time, network or disk
/// traffic. CPU time does not count while a process's stack stays the same. Sent repeatedly once
/// they are idle for the stall timeout, and at once when one shows activity again.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub idle_ms: u64,
    /// The process that shows activity again, by its number on its host, if known.
    pub index: Option<u32>,
    /// What it did, if known.
    pub sign: Option<Sign>,
}

/// The answer to [`Request::ReportStacks`](crate::Request::ReportStacks), after the stacks.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StacksReported {
    /// How long there was no activity before the stacks were taken.
    pub idle_ms: u64,
    /// The state of processes that computed in that time without a change of their stacks; absent
    /// if there are none.
    pub computing: Option<Computing>,
    /// The processes that are stopped (SIGSTOP), by their numbers on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<u32>,
}

/// The state of processes that compute although their stacks stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Computing {
    /// Their stacks show that all wait for other processes.
    Waits,
    /// One may be in a long call, which is work.
    MayWork,
}

/// A process wrote a traceback and nothing since, and does not end.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    pub index: u32,
    /// The line that names the exception.
    #[serde(deserialize_with = "message")]
    pub exception: String,
    /// How long the process has written nothing.
    pub silent_ms: u64,
    /// Whether the main thread raised it, not another thread or a child.
    pub is_of_main: bool,
    /// Whether the main thread has left its script, which proves that it did not catch its
    /// exception. Absent if the stack could not be read.
    pub left_script: Option<bool>,
    /// The innermost frame first; empty if unknown.
    #[serde(
        default,
        deserialize_with = "frames",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub frames: Vec<String>,
}

impl Raised {
    /// Whether the process has failed, as far as is known: its exception was not caught.
    pub fn has_failed(&self) -> bool {
        self.is_of_main && self.left_script.unwrap_or(true)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmRemoved {
    pub files: u32,
}

/// All processes have ended, and all output was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    pub survivors: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Request};
    use record::exit::SignalNumber;

    #[test]
    fn as_they_stand_in_the_manual() {
        let event = |text: &str| serde_json::from_str::<Event>(text).unwrap();
        let exited = Exited {
            cpu_s: 1.5,
            max_rss_bytes: 4096,
            ..Exited::new(2, ProcessEnd::exited(137))
        };
        assert_eq!(
            event(r#"{"event":"exited","index":2,"code":137,"cpu_s":1.5,"max_rss_bytes":4096}"#),
            Event::Exited(exited.clone())
        );
        let killed = Exited {
            end: ProcessEnd {
                oom: true,
                ..ProcessEnd::killed(SignalNumber::KILL)
            },
            ..exited
        };
        assert_eq!(
            serde_json::from_str::<Event>(
                &serde_json::to_string(&Event::Exited(killed.clone())).unwrap()
            )
            .unwrap(),
            Event::Exited(killed)
        );
        assert_eq!(
            event(r#"{"event":"output","index":0,"stream":"stderr"}"#),
            Event::Output(Output {
                index: 0,
                stream: ProcessStream::Stderr
            })
        );
        let end: Request = serde_json::from_str(r#"{"do":"end","grace_ms":500}"#).unwrap();
        assert_eq!(
            end,
            Request::End(End {
                grace_ms: 500,
                stacks: false,
                ending: Ending::default()
            })
        );
        assert_eq!(
            serde_json::from_str::<Request>(r#"{"do":"start"}"#).unwrap(),
            Request::Start(Start::default())
        );
    }
}
