//! The processes of all jobs of this user on this host, with their roles.

use crate::processes::{self, Finder, MemberProcess};
use crate::procfs::{self, ProcessEnvironment};
use job::Role;
use std::collections::BTreeSet;
use wire::reap::Pick;

/// Its role is in its own environment, or in the environment of an ancestor.
pub struct JobProcess {
    pub member: MemberProcess,
    pub job: String,
    pub role: Option<Role>,
    /// The rank of the process among those of its role.
    pub rank: Option<u32>,
}

/// All processes of jobs, without supervisors and watchers, which carry no job's name.
pub fn job_processes() -> Vec<JobProcess> {
    let job_process = |member: MemberProcess| {
        let environment = procfs::environment(member.carrier)?;
        let job = environment.text(processes::JOB)?;
        let (role, rank) = role_of(&environment);
        Some(JobProcess {
            member,
            job,
            role,
            rank,
        })
    };
    let members = Finder::default().find(|_| true);
    members.into_iter().filter_map(job_process).collect()
}

/// Includes the samplers of a rank, because one of them may hang.
pub fn selected(wanted: &Pick) -> Vec<JobProcess> {
    let is_selected = |process: &JobProcess| {
        wanted.job.as_ref().is_none_or(|job| *job == process.job)
            && (wanted.role.is_none() || wanted.role == process.role)
            && (wanted.rank.is_none() || wanted.rank == process.rank)
    };
    job_processes().into_iter().filter(is_selected).collect()
}

pub fn names() -> BTreeSet<String> {
    let processes = job_processes().into_iter();
    processes.map(|process| process.job).collect()
}

/// What a process is by the variables of torch and DGL.
pub fn role_of(environment: &ProcessEnvironment) -> (Option<Role>, Option<u32>) {
    let number = |name: &str| environment.text(name)?.parse().ok();
    let program = environment
        .text(wire::job::PROGRAM)
        .and_then(|name| name.parse().ok());
    if let Some(program) = program {
        return (Some(Role::Program(program)), number("RANK"));
    }
    match environment.text("DGL_ROLE").as_deref() {
        Some("server") => (Some(Role::Server), number("DGL_SERVER_ID")),
        Some("client") => (Some(Role::Trainer), number("RANK")),
        _ => match number("RANK") {
            Some(rank) => (Some(Role::Worker), Some(rank)),
            None => (None, None),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_is_in_its_job() {
        let table: [(&str, Option<Role>, Option<u32>); 7] = [
            (
                "DGL_ROLE=server\0DGL_SERVER_ID=2\0RANK=9\0",
                Some(Role::Server),
                Some(2),
            ),
            (
                "DGL_ROLE=client\0RANK=9\0DGL_SERVER_ID=2\0",
                Some(Role::Trainer),
                Some(9),
            ),
            ("DGL_ROLE=client\0", Some(Role::Trainer), None),
            ("RANK=3\0", Some(Role::Worker), Some(3)),
            ("RANK=x\0", None, None),
            ("DGL_ROLE=sampler\0RANK=3\0", Some(Role::Worker), Some(3)),
            ("", None, None),
        ];
        for (text, role, rank) in table {
            assert_eq!(
                role_of(&ProcessEnvironment::new(text.as_bytes().to_vec())),
                (role, rank),
                "{text:?}"
            );
        }
    }
}
