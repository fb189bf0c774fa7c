//! Jobs that outlive the tool that started them. Their launcher runs on the first host, with all of
//! this crate; [`start`] brings it there, and [`follow`] shows what it writes.
//!
//! The launcher writes run.jsonl, a log for each process, and `messages`, what it would show on a
//! terminal, into a directory of the job on the first host. What happens when something goes, and
//! what the user sees (the number is the exit status, of dgl-spawn or of --attach):
//!
//!     goes               before the launcher runs, and while agents connect
//!     launching machine  the launcher sees the end of its connection and ends; nothing started
//!     first host         refused, 74: the host and why; agents that have connected end
//!     another host       refused, 74: the host, and the address to which it cannot connect
//!     a connection       as with the machine behind it
//!     first host's disk  refused, 74: the directory that cannot be made or written
//!
//!     goes               during preflight and start
//!     launching machine  the job starts; --attach shows it
//!     first host         the agents see the end of their connections and end; nothing stays;
//!                        lost, and perhaps the job goes on there, 74
//!     another host       ends the job: cause `host`, 74; --restart tries again
//!     a connection       to an agent: as with its host; of the tool: the job starts; 74
//!     first host's disk  the job goes on without further records, and ends with 74
//!
//!     goes               while the job runs
//!     launching machine  the job goes on; --attach returns to it, from any machine
//!     first host, or     every host ends its part, at once or after --host-timeout; --attach: the
//!     the launcher       launcher has ended there, and how the job ended is unknown, 74
//!     another host       the launcher hears nothing for --host-timeout and ends the job, 74
//!     a connection       to an agent: as with its host; of --attach: lost, and perhaps the job
//!                        goes on there, 74
//!     first host's disk  as before; it hangs: processes wait once 1 MiB waits, nobody is lost
//!
//!     goes               while the job ends
//!     launching machine  nothing changes
//!     first host         every host ends its part: TERM, and KILL after the grace
//!     another host       lost while the job was ended; its agent ends its part
//!     a connection       as with the host behind it
//!     first host's disk  the summary is written into room that was reserved before the start;
//!                        --attach: the records of the job are not complete there, 74
//!
//!     goes               after the end
//!     launching machine  nothing changes
//!     first host         --attach: no host has a detached job of that name, 1, until it is back
//!     another host       --attach works as before, and names the host, 74
//!     a connection       --attach tells all from the beginning again
//!     first host's disk  --attach finds no job, or no summary, 74

pub mod follow;
pub mod start;

use crate::plan;
use record::{Graph, Host, Process};
use serde::{Deserialize, Serialize};
use wire::Text;

/// All that the launcher on the first host has to know. It goes there in memory alone, because the
/// processes have the values of `--env`.
#[derive(Serialize, Deserialize)]
pub struct DetachedJob {
    pub plan: plan::JobPlan,
    /// All hosts of the stream.
    pub hosts: Vec<Host>,
    pub graph: Option<Graph>,
    pub processes: Vec<Process>,
    /// The directory for logs on the first host, if they are not to lie in that of the job.
    pub log_dir: Option<Text>,
}

impl DetachedJob {
    /// The process records without their environments and commands, which may hold secrets.
    pub fn public_records(&self) -> Vec<Process> {
        self.processes.iter().map(public_record).collect()
    }
}

/// The record of a process without its command, and without all of its environment that DGL does
/// not need.
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
