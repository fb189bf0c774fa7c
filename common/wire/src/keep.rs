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
use ::job::{Exit, Limit, Loss, Role, StallRule};
use serde::{Deserialize, Serialize};
use std::net::Ipv4Addr;

/// What the keeper must know beside the job and its processes. It is answered by [`Prepared`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// This host leads.
    pub leads: bool,
    /// What may not take longer; the leader watches it.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// What is a stall; the leader watches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall: Option<StallRule>,
    /// Of graph servers that stay: what their trainers must have in common with them, by
    /// [`crate::servers`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves: Option<crate::servers::Data>,
}

/// A record of a process of this host, a line of JSON, which is kept for those who follow. The
/// agent reads its `role` and `rank` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The record, as a line of JSON.
    pub record: String,
}

/// The keeper has the job's name on this host, and its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// Its public key for this job.
    pub key: String,
    /// Where it listens for the other keepers, if it leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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

/// Whom a keeper joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The number of the first host.
    pub host: u32,
    /// The address of the host.
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
        /// The folder.
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
    /// The reason.
    pub why: Refusal,
}

/// A job is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Where its keeper writes what happens.
    pub folder: crate::Text,
}

/// The wish to follow a job that was left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follow {
    /// The name of the job.
    pub job: String,
    /// The host's address.
    pub address: Ipv4Addr,
    /// The job's records are told first, as [`Record`]s and then [`Event::Ready`]; what happened
    /// follows when the first request has come.
    #[serde(default)]
    pub records: bool,
}

/// The leader has found that the job stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// The question by which it was found out, and which all hosts have answered.
    pub number: u32,
    /// For how long there was no sign of life on any host, in milliseconds.
    pub silent_ms: u64,
    /// The job is ended because of that.
    pub ends: bool,
}

/// What happened, and when. The journal of a job is lines of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    /// Milliseconds since 1970, by the clock of the host.
    pub time_ms: u64,
    /// What happened.
    pub what: Box<Event>,
}

/// What keepers tell each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum PeerMessage {
    /// To the leader: the next process of this host.
    Member {
        /// The role of the process in its job.
        role: Role,
        /// The job is not up before it listens.
        awaited: bool,
    },
    /// To the leader: all processes were told, and can be started.
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
    /// To the leader: no process of this host has given a sign of life for so long.
    Idle {
        /// In milliseconds.
        for_ms: u64,
    },
    /// To the leader: one does.
    Moves,
    /// To the others: the leader asks where the processes stand.
    Stand {
        /// The number of the question.
        number: u32,
    },
    /// To the leader: where they stand was written down.
    Stands {
        /// The number of the question.
        number: u32,
        /// For how long there has been no sign of life, in milliseconds.
        idle_ms: u64,
    },
    /// To the leader: a process has raised an exception that nobody caught, and is to fail by that.
    Raised {
        /// The number of the process on its host.
        index: u32,
        /// The line that names the exception.
        exception: String,
    },
    /// To the leader: this host cannot go on.
    Lost {
        /// Why.
        loss: Loss,
    },
    /// To the leader: somebody wants the job to end.
    Stop {
        /// The signal that came to the keeper; a second one is impatient. Absent where somebody who
        /// follows the job wants it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// To the leader: somebody wants it to end at once. To the others: so it does.
    Kill,
    /// To the others: the job ends.
    End {
        /// First ask processes for their stacks.
        stacks: bool,
        /// Why.
        ending: Ending,
    },
    /// To either: the sender lives.
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
            what: Box::new(Event::Ending(ending.clone())),
        });
        let text = serde_json::to_string(&past).unwrap();
        assert!(
            text.starts_with(concat!(
                r#"{"event":"past","time_ms":17,"what":{"event":"ending","#,
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
