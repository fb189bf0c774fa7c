//! Which hosts of a job are up, and the faults at the end of the others.

use record::Host;
use record::error::{Fault, Report};
use std::collections::BTreeSet;

/// The hosts of a job, by their indices.
pub struct HostStates {
    /// Those on which not everything has ended, and which are not lost.
    pub up: BTreeSet<usize>,
    /// Faults of processes that could not be ended.
    faults: Report,
}

impl HostStates {
    /// Begins with hosts that are all up.
    pub fn new(count: usize) -> HostStates {
        HostStates {
            up: (0..count).collect(),
            faults: Report::default(),
        }
    }

    /// Notes that all processes on a host have ended, except for this number.
    pub fn end(&mut self, index: usize, host: &Host, survivors: u32) {
        self.up.remove(&index);
        if survivors > 0 {
            let problem = format!("{survivors} of the job's processes could not be ended");
            let fault = Fault::item(host.location(), problem);
            self.faults.push(fault.fix("check with dgl-reap --list"));
        }
    }

    /// Notes the loss of a host; `is_fault` is whether to report it as a fault.
    pub fn lose(&mut self, index: usize, host: &Host, why: &str, is_fault: bool) {
        self.up.remove(&index);
        if is_fault {
            let problem = format!("lost while the job was ended: {why}");
            let fix = "its agent's watcher ends the job there; check with dgl-reap --list";
            let fault = Fault::unreachable(host.location(), problem);
            self.faults.push(fault.fix(fix));
        }
    }

    /// All faults, including those of hosts that are still up after the end of the job.
    pub fn into_faults<'h>(self, job: &str, hosts: impl Iterator<Item = &'h Host>) -> Report {
        let mut faults = self.faults;
        let problem = "it did not report that the job's processes have ended";
        let fix = format!("check with dgl-reap --list, end them with dgl-reap --job {job}");
        for (host_index, host) in hosts.enumerate() {
            if self.up.contains(&host_index) {
                faults.push(Fault::unreachable(host.location(), problem).fix(fix.clone()));
            }
        }
        faults
    }
}
