//! The description of a job for the agent of each host.

use crate::plan;
use record::Host;
use record::term::millis;
use wire::Text;
use wire::job::Job;
use wire::servers::TrainerGroup;

pub fn job(plan: &plan::JobPlan, host: &Host, hosts: usize) -> Job {
    Job {
        name: plan.name.clone(),
        token: plan.token.clone(),
        host: host.id,
        address: host.ip.0,
        hosts: u32::try_from(hosts).unwrap_or(u32::MAX),
        grace_ms: millis(plan.rules.grace),
        host_timeout_ms: millis(plan.host_timeout),
        private_shm: plan.private_shm,
    }
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
