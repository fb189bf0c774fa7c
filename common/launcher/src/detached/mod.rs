//! Jobs that outlive the tool that started them. Their launcher runs on the first host, with all of
//! this crate; [`start`](start::start) has it started there, and [`follow`] shows what it writes.
//!
//! The launcher writes run.jsonl, a log for each process, and `messages`, what it would show on a
//! terminal, into a directory of the job on the first host. The table shows what happens when
//! something is lost, and what the user sees (the number is the exit status of dgl-spawn or of
//! --attach):
//!
//!     lost               before the launcher runs, and while agents connect
//!     launching machine  the launcher sees the end of its connection and ends; nothing started
//!     first host         refused, 74: the host and why; agents that have connected end
//!     another host       refused, 74: the host, and the address to which it cannot connect
//!     a connection       as with the machine behind it
//!     first host's disk  refused, 74: the directory that cannot be made or written
//!
//!     lost               during preflight and start
//!     launching machine  the job starts; --attach shows it
//!     first host         the agents see the end of their connections and end; nothing is left;
//!                        lost, but the job may still run there, 74
//!     another host       ends the job: cause `host`, 74; --restart tries again
//!     a connection       to an agent: as with its host; of the tool: the job starts; 74
//!     first host's disk  the job continues without further records, and ends with 74
//!
//!     lost               while the job runs
//!     launching machine  the job continues; --attach returns to it, from any machine
//!     first host, or     every host ends its part, at once or after --host-timeout; --attach: the
//!     the launcher       launcher has ended there, and how the job ended is unknown, 74
//!     another host       the launcher gets no message for --host-timeout and ends the job, 74
//!     a connection       to an agent: as with its host; of --attach: lost, but the job may
//!                        still run there, 74
//!     first host's disk  as before; if it hangs, processes block once 1 MiB waits, and no host
//!                        is lost
//!
//!     lost               while the job ends
//!     launching machine  nothing changes
//!     first host         every host ends its part: TERM, and KILL after the grace
//!     another host       lost while the job was ended; its agent ends its part
//!     a connection       as with the host behind it
//!     first host's disk  the summary is written into room that was reserved before the start;
//!                        --attach: the records of the job are not complete there, 74
//!
//!     lost               after the end
//!     launching machine  nothing changes
//!     first host         --attach: no host has a detached job of that name, 1, until it is back
//!     another host       --attach works as before, and names the host, 74
//!     a connection       --attach shows everything from the beginning again
//!     first host's disk  --attach finds no job, or no summary, 74

pub mod follow;
pub mod start;

use crate::plan;
use record::{Graph, Host, Process};
use serde::{Deserialize, Serialize};
use wire::Text;

/// Everything that the launcher on the first host needs. It is only kept in memory, because the
/// processes have the values of `--env`.
#[derive(Serialize, Deserialize)]
pub struct DetachedJob {
    pub plan: plan::JobPlan,
    /// All hosts of the stream.
    pub hosts: Vec<Host>,
    pub graph: Option<Graph>,
    pub processes: Vec<Process>,
    /// The directory for logs on the first host, if it is not that of the job.
    pub log_dir: Option<Text>,
}

impl DetachedJob {
    /// The process records without their environments and commands, which may hold secrets.
    pub fn public_records(&self) -> Vec<Process> {
        self.processes.iter().map(public_record).collect()
    }
}

/// The record of a process without its command, and with only the part of its environment that DGL
/// needs.
fn public_record(process: &Process) -> Process {
    let is_of_dgl = |(name, _): &(&String, &String)| name.starts_with("DGL_");
    let env = process.env.iter().filter(is_of_dgl);
    Process {
        env: env
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        env_b64: Default::default(),
        setup: None,
        argv: Some(Vec::new()),
        argv_b64: None,
        shell: None,
        python: None,
        script: None,
        ..process.clone()
    }
}
