//! A job that outlives the tool that started it.
//!
//! The launcher of a detached job runs on the job's first host, and the agents of all hosts
//! connect to it. The tool has a login on each host, over which it arranges that:
//!
//!     tool -> first host    detach, then plan …, launch
//!                           <- ticket …, one for each host
//!     tool -> every host    dial (the ticket of that host)
//!     tool -> first host    follow
//!                           <- what the launcher writes, from its beginning on
//!
//! From then on the launcher talks to the agents like a tool that stays connected.
//! [`Request::Follow`](crate::Request::Follow) sends what it has written and writes, while the job
//! runs and when it has ended.

use crate::dial::Ticket;
use crate::job::JobOnHost;
use serde::{Deserialize, Serialize};

/// A piece of the plan of a job, whose form only launchers know. All pieces together are one JSON
/// value. The plan has the values of `--env`, so it is only kept in memory.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPiece {
    /// The text of the piece.
    pub text: String,
}

impl std::fmt::Debug for PlanPiece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlanPiece({} bytes)", self.text.len())
    }
}

/// Ends the plan, and names the job. The launcher takes the name, and listens for the agents of all
/// hosts. It answers with a [`HostTicket`] for each of them, or with
/// [`Finding::NameInUse`](crate::preflight::Finding::NameInUse) if a launcher of this name runs
/// there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The job on the host of its launcher.
    #[serde(flatten)]
    pub job: JobOnHost,
    /// The port on which it listens; 0 for any.
    pub port: u16,
    /// How long the agents may take to connect, in milliseconds.
    pub patience_ms: u64,
}

/// What the agent of a host needs to connect to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTicket {
    /// The number of the host.
    pub host: u32,
    /// Its ticket, with a key of its own.
    #[serde(flatten)]
    pub ticket: Ticket,
}

/// The record of a process of a detached job, without environment and command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetachedProcess {
    /// The record, as a line of JSON.
    pub record: String,
}

/// All agents have connected: the launcher no longer needs the tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detached {
    /// The directory in which the launcher writes.
    pub folder: crate::Text,
}

/// The launcher has ended. What it wrote has been sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LauncherEnded {
    /// The summary of the job as a line of JSON, if the launcher has ended normally and the file of
    /// the records lacks it, because the disk was full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
}
