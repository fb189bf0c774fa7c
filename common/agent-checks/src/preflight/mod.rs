//! The checks before a job starts, a file for each subject. needs.rs derives the details from the
//! job and its processes. Whatever may prevent the start is worded here, once, under a typed
//! subject; the launcher compares hosts and adds fixes.

mod commands;
mod files;
mod jobs;
mod memory;
pub mod needs;
mod partition;
pub mod ports;
mod reach;
mod workspace;

use agent::job::DescribedJob;
use host::open_files;
use wire::Failure;
use wire::preflight::{Check, Finding, Problem, Subject};

/// The state that lasts from one check to the next.
#[derive(Debug, Default)]
pub struct Preflight {
    listeners: reach::Listeners,
    /// `None` before the processes' Pythons were asked.
    may_use_torch: Option<bool>,
}

impl Preflight {
    pub fn examine(
        &mut self,
        check: &Check,
        described: &DescribedJob,
    ) -> Result<Vec<Finding>, Failure> {
        let DescribedJob { job, processes } = described;
        let problems = match check {
            Check::Files => return Ok(workspace::check(job, processes)),
            Check::OpenFiles => {
                let need = needs::open_files(processes);
                Vec::from_iter(need.and_then(check_open_files))
            }
            Check::Ports => ports::check(&needs::ports(job, processes)),
            Check::Jobs => jobs::check(job),
            Check::SharedMemory if job.private_shm => Vec::from_iter(memory::check_private()),
            Check::SharedMemory if processes.iter().any(needs::is_server) => memory::check(),
            Check::SharedMemory => Vec::new(),
            Check::ArgumentSizes => Vec::from_iter(commands::check_sizes(job, processes)),
            Check::Commands => {
                let (findings, may_use_torch) = commands::check(processes);
                self.may_use_torch = may_use_torch;
                return Ok(findings);
            }
            Check::Listen => return Ok(Vec::from_iter(self.listen(described)?)),
            Check::Connect { targets } => return Ok(reach::connect(targets)),
            Check::StopListening => {
                self.listeners.stop();
                Vec::new()
            }
        };
        Ok(problems.into_iter().map(Finding::from).collect())
    }

    /// Listens if processes of this host will communicate with those of others: those of DGL do,
    /// and others if their script uses torch.
    fn listen(&mut self, described: &DescribedJob) -> Result<Option<Finding>, Failure> {
        let DescribedJob { job, processes } = described;
        let runs_dgl = processes.iter().any(|process| process.record.role.is_dgl());
        let is_needed = runs_dgl || self.may_use_torch != Some(false);
        let meets_others = is_needed && processes.iter().any(needs::meets_others);
        if job.hosts < 2 || !meets_others {
            return Ok(None);
        }
        let ports = needs::ports(job, processes);
        // a job without a claim may be about to listen on the port
        let port = ports.first().map(|port| port.port);
        let port = port.filter(|_| !jobs::others_run(job));
        self.listeners.listen(job.address, port).map(Some)
    }
}

/// Checks the hard limit; the soft one is raised when a process is started.
fn check_open_files(need: u64) -> Option<Problem> {
    let limit = open_files::hard_limit().filter(|limit| *limit < need)?;
    let problem = format!(
        "a process may have {limit} open files, and a server needs about {need} for the clients of \
         this job"
    );
    Some(Problem::new(Subject::OpenFiles, problem))
}
