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
//!     launcher -> first host    expect_peer (key of another host) …
//!     launcher -> the others    join (address, port and key of the first)
//!     launcher -> every host    start
//!                               <- kept, and then what follow tells
//!
//! The keeper writes down what happens, as lines of [`Past`], and the output of each process, in a
//! folder of the job. [`Request::Follow`](crate::Request::Follow) tells both from their beginnings
//! on, while the job runs and when it has ended.

use crate::ending::Rules;
use crate::supervise::{Computing, Moves};
use crate::{Event, Request};
use record::Role;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::net::Ipv4Addr;

/// What the keeper must know besides the job and its processes; answered by [`Prepared`], or by
/// [`Finding::NameInUse`](crate::preflight::Finding::NameInUse) if a job of this name is kept
/// there.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// When the job ends, if this host leads.
    pub leads: Option<Rules>,
    /// For persistent graph servers: what their trainers must have in common with them, by
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
pub struct ExpectPeer {
    /// The number of the host.
    pub host: u32,
    /// The public key of its keeper.
    pub key: String,
    /// Its processes, in the order of their numbers.
    pub processes: Vec<Member>,
}

/// A process, as far as the life of its job depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub role: Role,
    /// Whether it is of a program that serves the others.
    #[serde(default)]
    pub service: bool,
    /// Whether the job is not up before this process listens.
    pub awaited: bool,
}

impl Member {
    /// Whether the process is there for the others: a graph server, or one of a service.
    pub fn serves(&self) -> bool {
        self.service || self.role == Role::Server
    }
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

/// A job is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The folder in which the keeper writes what happens.
    pub folder: crate::Text,
}

/// The leader has found that the job stalls.
#[skip_serializing_none]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// The number of the question that found the stall and that all hosts have answered.
    pub number: u32,
    /// For how long there was no sign of life on any host, in milliseconds.
    pub silent_ms: u64,
    /// What processes do that compute, though they stand still.
    pub computing: Option<Computing>,
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

/// A message from one keeper to another. Events go to the leader, as from the agent of a host to an
/// attached launcher, and requests come back. A request to the leader is somebody's order on that
/// host: to end the job, or to kill it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PeerMessage {
    Event(Event),
    Request(Request),
}

impl From<Request> for PeerMessage {
    fn from(request: Request) -> PeerMessage {
        PeerMessage::Request(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{Cause, Ending, ExitStatus, JobFailure, Reason};
    use crate::job::JobOnHost;
    use crate::supervise::End;

    #[test]
    fn what_is_written_is_read() {
        let failure = JobFailure {
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
        let end = Request::End(End {
            grace_ms: u64::MAX,
            stacks: true,
            ending,
        });
        for message in [PeerMessage::Request(end), PeerMessage::Event(past)] {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(serde_json::from_str::<PeerMessage>(&text).unwrap(), message);
        }
        let request: Request =
            serde_json::from_str(r#"{"do":"follow","name":"try7","address":"10.0.0.1"}"#).unwrap();
        assert_eq!(
            request,
            Request::Follow(JobOnHost {
                name: "try7".into(),
                address: Ipv4Addr::new(10, 0, 0, 1),
            })
        );
    }
}
