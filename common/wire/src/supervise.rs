//! The processes of a job while they live: start, output, end.
//!
//! [`Start`] follows the job and its processes, and is answered by events until [`Over`], which is
//! the last one. While processes run, both sides send `alive` at a fixed interval, so that silence
//! means loss.

use crate::cut;
use crate::ending::Ending;
use crate::stacks::{MAX_FRAMES, MAX_TEXT};
use record::Sign;
use record::exit::ProcessEnd;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// How many characters of the line that names an exception are kept.
const MAX_EXCEPTION: usize = 2000;

/// Starts all processes of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    /// Environment variables of every process; those of its record take precedence.
    pub env: Vec<(String, crate::Text)>,
    /// For persistent graph servers: the settings that their trainers must share, and their name.
    /// The trainers map their shared memory, and may end a moment after them.
    pub serves: Option<Box<crate::servers::Find>>,
    /// The persistent graph servers that the processes use.
    /// [`Event::ServersEnded`](crate::Event::ServersEnded) reports their end.
    pub uses: Option<crate::servers::ServersOnHost>,
    /// The time without activity after which the job stalls, in milliseconds; 0 without detection
    /// of stalls. [`Event::Activity`](crate::Event::Activity) is sent more often.
    pub stall_ms: u64,
    /// Whether to report a process with an uncaught exception at once, as soon as its stack shows
    /// that it has left its script.
    pub fail_on_exception: bool,
}

/// Ends all processes of the job: TERM, and KILL for those that remain after the grace time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The grace from TERM to KILL, in milliseconds.
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

/// A process of the job listens on the port of a graph server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The number of the server's process on its host.
    pub index: u32,
}

/// One of the two streams that a process writes.
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

/// A stream of a process has ended: every process has closed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    pub index: u32,
    pub stream: ProcessStream,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exited {
    pub index: u32,
    #[serde(flatten)]
    pub end: ProcessEnd,
    /// CPU time of the process and of the children that it waited for, in seconds.
    pub cpu_s: f64,
    /// The largest resident memory, in bytes, of the process or of any child that it waited for.
    pub max_rss_bytes: u64,
    /// Whether dgl-reap is ending the whole job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub job_reaped: bool,
}

impl Exited {
    /// A process that ended with this status, without other known facts.
    pub fn new(index: u32, end: ProcessEnd) -> Exited {
        Exited {
            index,
            end,
            cpu_s: 0.0,
            max_rss_bytes: 0,
            job_reaped: false,
        }
    }
}

/// For how long none of the job's processes has shown activity: output, CPU time, bytes over the
/// network or from a disk. CPU time does not count while the stack of a process stays the same.
/// Sent repeatedly once they are idle for the stall timeout, and at once when one of them shows
/// activity again.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    pub idle_ms: u64,
    /// The number of the process on its host that shows activity again, if it is known.
    pub index: Option<u32>,
    /// What it did, if that is known.
    pub sign: Option<Sign>,
}

/// The answer to [`Request::ReportStacks`](crate::Request::ReportStacks), behind the stacks.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StacksReported {
    /// For how long there had been no activity when the stacks were taken, in milliseconds.
    pub idle_ms: u64,
    /// What the processes do that have computed in that time without a change of their stacks;
    /// absent if there are none.
    pub computing: Option<Computing>,
    /// The processes that a signal has stopped (SIGSTOP), by their numbers on the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<u32>,
}

/// The state of processes that compute although their stacks stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Computing {
    /// All of them wait for other processes, as their stacks show.
    Waits,
    /// One may be in one long call, which is work.
    MayWork,
}

/// A process has written a traceback and nothing since, and does not end.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    pub index: u32,
    /// The line that names the exception.
    pub exception: String,
    /// For how long the process has written nothing, in milliseconds.
    pub silent_ms: u64,
    /// Whether its main thread has left its script, which proves that the exception was not caught.
    /// Absent if unknown: the stack could not be read, or the exception was another thread's or a
    /// child's.
    pub left_script: Option<bool>,
    /// The stack of the process, the innermost frame first; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<String>,
}

impl Raised {
    /// Limits it to what host-agent reads, because a hostile host might send as much as a line
    /// holds.
    pub fn bounded(self) -> Raised {
        let frames = self.frames.iter().take(MAX_FRAMES);
        Raised {
            exception: cut(&self.exception, MAX_EXCEPTION),
            frames: frames.map(|frame| cut(frame, MAX_TEXT + 1)).collect(),
            ..self
        }
    }
}

/// The job's files in /dev/shm were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShmRemoved {
    pub files: u32,
}

/// All processes have ended, and all of their output was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// How many processes could not be ended.
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
