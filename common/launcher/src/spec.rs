//! Converts records into the requests to the agent of each host.

use crate::plan;
use record::error::Fault;
use record::term::millis;
use record::{self, Host};
use wire::Text;
use wire::job::{Command, Job, Process};
use wire::servers::TrainerGroup;

/// The request that describes the job to one of its hosts.
pub fn job(plan: &plan::JobPlan, host: &Host, hosts: usize) -> Job {
    Job {
        name: plan.name.clone(),
        token: plan.token.clone(),
        host: host.id,
        address: host.ip.0,
        hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
        grace_ms: millis(plan.rules.grace),
        host_timeout_ms: millis(plan.host_timeout),
    }
}

/// The request that describes a process; `index` is its number on its host.
pub fn process(index: u32, process: &record::Process) -> Result<Process, Fault> {
    let command = match process.command()? {
        record::Command::Words(words) => {
            Command::Words(words.into_iter().map(Text::from).collect())
        }
        record::Command::Shell(text) => Command::Shell(text),
    };
    let env = process
        .environment()?
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Text::from(value)))
        .collect();
    Ok(Process {
        index,
        role: process.role,
        rank: process.rank,
        command,
        setup: process.setup.clone(),
        cwd: process.cwd.as_deref().map(Text::from),
        cpus: process.cpus.clone(),
        env,
        port: process.port,
        service: process.service,
    })
}

/// The environment variables of all processes of a group of trainers.
pub fn group_env(group: TrainerGroup) -> Vec<(String, Text)> {
    let variables = [
        ("DGL_GROUP_ID", group.number.to_string()),
        ("MASTER_PORT", group.port.to_string()),
    ];
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Text::from(&*value)))
        .collect()
}
