//! The checks before a job starts, a file for each subject. The answers are typed findings; the
//! launcher decides whether they are faults, and what people are told.

mod commands;
mod files;
mod jobs;
mod memory;
mod partition;
pub mod ports;
mod reach;

use crate::job::JobAssembly;
use crate::open_files;
use wire::Failure;
use wire::preflight::{Check, Finding, Subject};

/// The state that lasts from one check to the next.
#[derive(Debug, Default)]
pub struct Preflight {
    listeners: reach::Listeners,
}

impl Preflight {
    /// Carries out one check; `tell` gets each finding, with the bytes that belong behind it.
    pub fn examine(
        &mut self,
        check: &Check,
        job: &JobAssembly,
        tell: &mut dyn FnMut(Finding, &[u8]),
    ) -> Result<(), Failure> {
        let mut found = |finding: Finding| tell(finding, &[]);
        match check {
            Check::Folder { path } => files::check_folder(path).into_iter().for_each(found),
            Check::File { folder, path } => {
                files::check_file(folder, path).into_iter().for_each(found);
            }
            Check::Script(script) => files::check_script(script).into_iter().for_each(found),
            Check::IpConfig { folder, path } => {
                files::read_ip_config(folder, path)
                    .into_iter()
                    .for_each(|text| tell(Finding::IpConfig, &text));
            }
            Check::PartitionConfig {
                folder,
                path,
                part,
                private_shm,
            } => {
                partition::check(folder, path, *part, *private_shm)
                    .into_iter()
                    .for_each(found);
            }
            Check::OpenFiles { need } => {
                check_open_files(*need).into_iter().for_each(found);
            }
            Check::Ports { ports } => ports::check(ports).into_iter().for_each(found),
            Check::Jobs => jobs::check(job.identity()?).into_iter().for_each(found),
            Check::SharedMemory => memory::check().into_iter().for_each(found),
            Check::PrivateSharedMemory => memory::check_private().into_iter().for_each(found),
            Check::ArgumentSizes => commands::check_sizes(job)?.into_iter().for_each(found),
            Check::Command { process, python } => {
                commands::check(job.process(*process)?, python.as_ref())
                    .into_iter()
                    .for_each(found);
            }
            Check::Listen { address, port } => {
                // a job that was not started under a claim may be about to listen there
                let port = port.filter(|_| !jobs::others_run(job));
                found(self.listeners.listen(*address, port)?);
            }
            Check::Connect { targets } => reach::connect(targets).into_iter().for_each(found),
            Check::StopListening => self.listeners.stop(),
        }
        Ok(())
    }
}

/// Checks the hard limit on open files; the soft limit is raised when a process is started.
fn check_open_files(need: u64) -> Option<Finding> {
    let limit = open_files::hard_limit().filter(|limit| *limit < need)?;
    let problem = format!(
        "a process may have {limit} open files, and a server needs about {need} for the clients of \
         this job"
    );
    Some(Finding::problem(Subject::OpenFiles, problem))
}
