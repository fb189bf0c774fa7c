//! A job that outlives its launcher.
//!
//! On each host one agent, the keeper, takes the place of the launcher.
//! [`Request::Keep`](crate::Request::Keep) starts it; from there on requests go to the keeper,
//! which hands those about the processes on to the agent that supervises them. The keeper of the
//! first host leads: it decides when the job ends. The others join it over TLS, each side knowing
//! the other's key from its own launcher:
//!
//!     launcher -> every host    keep, job, process …, record …, prepare
//!                               <- prepared (key; of the leader its port, too)
//!     launcher -> first host    guest (key of another host) …
//!     launcher -> the others    join (address, port and key of the first)
//!     launcher -> every host    start
//!                               <- kept, and then what follow tells
//!
//! The keeper writes down what happens, as lines of [`Past`], and the output of each process, in a
//! folder of the job. [`Request::Follow`](crate::Request::Follow) tells both from their beginnings
//! on, while the job runs and when it has ended.

pub use crate::ending::{Ending, Failure};

use crate::Event;
use crate::servers::ServersEnded;
use crate::supervise::Moves;
use ::job::{Exit, Limit, Loss, Role, StallRule};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// What the keeper must know besides the job and its processes; answered by [`Prepared`].
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// Whether this host leads.
    pub leads: bool,
    /// The time limits that the leader watches.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// When the job stalls, for which the leader watches; absent if nobody wants to know.
    pub stall: Option<StallRule>,
    /// For graph servers that stay: what their trainers must have in common with them, by
    /// [`crate::servers`].
    pub serves: Option<crate::servers::Data>,
}

/// The record of a process of this host, kept for those who follow. The agent reads only its `role`
/// and `rank`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The record, as a line of JSON.
    pub record: String,
}

/// The keeper has the job's name on this host, and its folder.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Its public key for this job.
    pub key: String,
    /// The port on which the leader listens for the other keepers; absent on other hosts.
    pub port: Option<u16>,
}

/// Another host whose keeper will join the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The number of the host.
    pub host: u32,
    /// The public key of its keeper.
    pub key: String,
}

/// The leader that a keeper joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The number of the first host.
    pub host: u32,
    /// The address of the first host.
    pub address: Ipv4Addr,
    /// The port on which its keeper listens.
    pub port: u16,
    /// The public key of its keeper.
    pub key: String,
}

/// Why a job cannot be kept on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// A job of this name is kept there.
    NameInUse {
        /// The name of the job.
        job: String,
    },
    /// The job's folder cannot be made or written.
    Folder {
        /// The path of the folder.
        path: String,
        /// The error, in the words of the operating system.
        error: String,
    },
    /// The keeper of the first host cannot listen, or cannot be reached from this one.
    Leader {
        /// The error, in the words of the operating system.
        error: String,
    },
}

/// The job cannot be kept on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason of the refusal.
    pub why: Refusal,
}

/// A job is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The folder in which the keeper writes what happens.
    pub folder: crate::Text,
}

/// The request to follow a job that was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The name of the job.
    pub job: String,
    /// The address of the host.
    pub address: Ipv4Addr,
    /// Whether the job's records are sent first, as [`Record`]s followed by [`Event::Ready`]. What
    /// happened follows when the first request has come.
    #[serde(default)]
    pub records: bool,
}

/// The leader has found that the job stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// The number of the question that found the stall and that all hosts have answered.
    pub number: u32,
    /// For how long there was no sign of life on any host, in milliseconds.
    pub silent_ms: u64,
    /// Whether the job is ended because of that.
    pub ends: bool,
}

/// The leader has found that the job moves again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// The `id` of the host that reported it.
    pub host: u32,
    /// What moves there.
    #[serde(flatten)]
    pub moves: Moves,
}

/// What happened, and when. The journal of a job consists of lines of this type.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Milliseconds since 1970, by the clock of the host, which may be wrong and may jump.
    pub time_ms: u64,
    /// Milliseconds since the host was started, by a clock that does neither; in a journal.
    pub uptime_ms: Option<u64>,
    /// How many milliseconds ago that was when it is told. Absent in a journal, and where the host
    /// has been started anew since.
    pub ago_ms: Option<u64>,
    /// What happened.
    pub what: Box<Event>,
}

/// A message from one keeper to another.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum PeerMessage {
    /// To the leader: the next process of this host.
    Member {
        /// The role of the process in its job.
        role: Role,
        /// Whether the job is not up before this process listens.
        awaited: bool,
    },
    /// To the leader: all processes were announced, and can be started.
    Joined,
    /// To all: all hosts have joined, so the processes start.
    Begin,
    /// To the leader: a server listens.
    Listening {
        /// The number of the process on its host.
        index: u32,
    },
    /// To the leader: a process ended.
    Exited {
        /// The number of the process on its host.
        index: u32,
        /// How the process ended.
        exit: Exit,
    },
    /// To the leader: no process of this host has given a sign of life for a while.
    Idle {
        /// For how long, in milliseconds.
        for_ms: u64,
    },
    /// To the leader: the processes give signs of life again.
    Moves(Moves),
    /// To the others: the leader asks where the processes stand.
    Stand {
        /// The number of the question.
        number: u32,
    },
    /// To the leader: the stacks of the processes were written down.
    Stands {
        /// The number of the question.
        number: u32,
        /// For how long there has been no sign of life, in milliseconds.
        idle_ms: u64,
    },
    /// To the leader: a process has raised an exception that nobody caught, and counts as failed.
    Raised {
        /// The number of the process on its host.
        index: u32,
        /// The line that names the exception.
        exception: String,
    },
    /// To the leader: this host cannot go on.
    Lost {
        /// The reason.
        loss: Loss,
    },
    /// To the leader: the graph servers that the job uses have ended.
    ServersEnded(ServersEnded),
    /// To the leader: somebody wants the job to end.
    Stop {
        /// The signal that the keeper got, a second one of which ends the job at once; absent if
        /// somebody who follows the job asks for its end.
        signal: Option<i32>,
    },
    /// To the leader: somebody wants the job to end at once. To the others: it does.
    Kill,
    /// To the others: the job ends.
    End {
        /// Whether processes are first asked for their stacks.
        stacks: bool,
        /// Why the job ends.
        ending: Ending,
    },
    /// To either: the sender is alive.
    Alive,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use ::job::{Cause, ExitStatus, Reason};

    #[test]
    fn what_is_written_is_read() {
        let failure = Failure {
            host: 1,
            index: Some(0),
            reason: Reason::Ended(ExitStatus::Signal(9).into()),
        };
        let ending = Ending {
            cause: Some(Cause::Process),
            failure: Some(failure),
        };
        let past = Event::Past(Past {
            time_ms: 17,
            uptime_ms: None,
            ago_ms: Some(3),
            what: Box::new(Event::Ending(ending.clone())),
        });
        let text = serde_json::to_string(&past).unwrap();
        assert!(
            text.starts_with(concat!(
                r#"{"event":"past","time_ms":17,"ago_ms":3,"what":{"event":"ending","#,
                r#""cause":"process","failure":{"host":1,"index":0,"#
            )),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), past);
        let message = PeerMessage::End {
            stacks: true,
            ending,
        };
        assert_eq!(
            serde_json::from_str::<PeerMessage>(&serde_json::to_string(&message).unwrap()).unwrap(),
            message
        );
        let request: Request = serde_json::from_str(
            r#"{"do":"follow","job":"try7","address":"10.0.0.1","records":true}"#,
        )
        .unwrap();
        assert_eq!(
            request,
            Request::Follow(Follow {
                job: "try7".into(),
                address: Ipv4Addr::new(10, 0, 0, 1),
                records: true
            })
        );
    }
}
