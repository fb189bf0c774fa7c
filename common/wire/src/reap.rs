//! Messages that find, signal and end the jobs on a host, and remove their remains. The answers are
//! records; only the tool knows their `host`.

use crate::text::{COMMAND, NAME, cut_message, first};
use record::exit::SignalNumber;
use record::term::cut;
use record::{Found, Reaped, Role};
use serde::{Deserialize, Deserializer, Serialize};
use serde_with::skip_serializing_none;

/// Selects processes of a job. The agent holds those that will be signalled, so that the signal
/// reaches all hosts at the same time.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// Absent for all jobs of this user.
    pub job: Option<String>,
    pub role: Option<Role>,
    /// Selects only the process of this rank, with its children.
    pub rank: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub signal: SignalNumber,
}

#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndJobs {
    /// Absent for all jobs of this user.
    pub job: Option<String>,
    pub grace_ms: u64,
}

/// The most ports of a process. One that listens on more is not a graph server.
const MAX_PORTS: usize = 64;

/// Reads a host's record of a process.
pub(crate) fn found<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Found, D::Error> {
    let found = Found::deserialize(deserializer)?;
    Ok(Found {
        job: cut(&found.job, NAME),
        ports: first(found.ports, MAX_PORTS),
        command: cut(&found.command, COMMAND),
        ..found
    })
}

/// Reads a host's record of a job that was ended or signalled.
pub(crate) fn reaped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reaped, D::Error> {
    let reaped = Reaped::deserialize(deserializer)?;
    Ok(Reaped {
        job: cut(&reaped.job, NAME),
        signal: reaped.signal.map(|name| cut(&name, NAME)),
        error: reaped.error.map(|error| cut_message(&error)),
        ..reaped
    })
}

#[cfg(test)]
mod tests {
    use crate::Event;

    #[test]
    fn no_text_of_a_process_or_job_is_longer_than_it_can_be() {
        let (long, ports) = ("x".repeat(9000), vec![7; 9000]);
        let found = record::Found {
            job: long.clone(),
            command: long.clone(),
            ports,
            ..record::Found::default()
        };
        let reaped = record::Reaped {
            job: long.clone(),
            signal: Some(long.clone()),
            error: Some(long),
            ..record::Reaped::default()
        };
        for event in [Event::Found(found), Event::Reaped(reaped)] {
            let sent = serde_json::to_string(&event).unwrap();
            let read: Event = serde_json::from_str(&sent).unwrap();
            let length = serde_json::to_string(&read).unwrap().len();
            assert!(length < 3000, "{length}");
        }
    }
}
