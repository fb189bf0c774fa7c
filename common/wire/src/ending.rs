//! The end of a job: why it ends, and the rules that end it.

use crate::text::message;
use record::exit::{ProcessEnd, SignalNumber};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::time::Duration;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// Absent if every process succeeded.
    pub cause: Option<Cause>,
    pub failure: Option<JobFailure>,
}

impl Ending {
    pub fn lost(host: u32, loss: Loss) -> Ending {
        Ending {
            cause: Some(Cause::Host),
            failure: Some(JobFailure {
                host,
                index: None,
                reason: Reason::Lost(loss),
            }),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFailure {
    pub host: u32,
    /// The number of the process on its host; absent if the host itself was lost.
    pub index: Option<u32>,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Ended(ProcessEnd),
    /// The server did not listen within this time.
    NotListening(Duration),
    Lost(Loss),
    /// A service's process exited with 0 before the others, or a server before it listened.
    EndedEarly,
    /// The process raised this exception, did not catch it, and did not end.
    Raised(#[serde(deserialize_with = "message")] String),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// No message arrived for this time.
    Silent(Duration),
    /// The agent that supervised the job's graph servers there ended.
    SupervisorGone,
    /// Another reason, in words for users.
    Other(#[serde(deserialize_with = "message")] String),
}

impl From<String> for Loss {
    fn from(why: String) -> Loss {
        Loss::Other(why)
    }
}

impl From<&str> for Loss {
    fn from(why: &str) -> Loss {
        Loss::Other(why.to_owned())
    }
}

/// Why a job ended before all processes finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Process,
    Host,
    /// The user or the system requested the end with this signal.
    Signal(SignalNumber),
    Time(Limit),
    /// The job showed no activity for this time.
    Stalled(Duration),
    /// The graph servers that the job uses have ended.
    Servers,
    /// The launcher or agent that decides about the job did not run for this long, so the hosts
    /// considered it lost and ended their parts.
    Paused(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The time from the start until all servers listen.
    Start(Duration),
    Job(Duration),
}

/// When a job stalls, and whether it is ended then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallRule {
    /// A job without activity for this long stalls.
    pub limit: Duration,
    pub ends: bool,
}

/// When a job ends although no process or host has failed, and how it is ended.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    pub limits: Vec<Limit>,
    /// Absent if stalls are not detected.
    pub stall: Option<StallRule>,
    /// Whether a process that left its script by an exception has failed, even if it does not end.
    pub fail_on_exception: bool,
    /// The time from TERM to KILL.
    pub grace: Duration,
}
