//! The plan of a job and its processes.

use job::Rules;
use record::error::{Fault, Report};
use record::{Host, Process, Role, host_of, is_variable_name};
use std::time::Duration;

const CREATE_AGAIN: &str = "create the stream again, starting with ipconf-check";

#[derive(Clone, Debug)]
pub struct JobPlan {
    pub name: String,
    /// The random token in its processes' environment.
    pub token: String,
    /// A host that sends nothing for this long counts as lost. One that receives nothing from the
    /// launcher for this long ends its part of the job.
    pub host_timeout: Duration,
    pub preflight: bool,
    pub rules: Rules,
    /// How many attempts failed before.
    pub attempt: u32,
    /// Whether it gets a private /dev/shm on each host.
    pub private_shm: bool,
    /// How long it waits for other jobs to end that use what it needs, and for graph servers that
    /// are starting.
    pub wait: Option<Duration>,
    /// How often it is restarted after a failure.
    pub restart: u32,
}

/// Whether a process is a persistent graph server.
pub fn is_staying(process: &Process) -> bool {
    process.server_name.is_some() && process.role == Role::Server
}

/// The fault of persistent servers in one stream with servers of another name, or with trainers:
/// the servers are a separate job, which outlives the trainers'.
fn mixed(processes: &[Process]) -> Option<Fault> {
    let first = processes.first()?;
    let is_other = |process: &&Process| {
        let has_servers = first.server_name.is_some() || process.server_name.is_some();
        process.server_name != first.server_name
            || has_servers && is_staying(process) != is_staying(first)
    };
    let other = processes.iter().find(is_other)?;
    let problem = "persistent graph servers are a separate job, and each group of trainers that \
                   uses them is another one";
    let fix = "plan both apart: … | dgl-env --role server --keep-alive --server-name NAME … | \
        dgl-spawn, and … | dgl-env --role trainer --server-name NAME … | dgl-spawn";
    Some(Fault::data(format!("process record {}", other.id), problem).fix(fix))
}

/// The name of the persistent servers that these processes use.
pub fn used_servers(processes: &[Process]) -> Option<&str> {
    let first = processes.first().filter(|process| !is_staying(process))?;
    first.server_name.as_deref()
}

pub fn check(hosts: &[Host], processes: &[Process]) -> Result<(), Report> {
    let mut report = Report::default();
    for process in processes {
        let location = || format!("process record {}", process.id);
        match host_of(hosts, process.host) {
            None => report.push(
                Fault::data(
                    location(),
                    format!("the stream has no host {}", process.host),
                )
                .fix(CREATE_AGAIN),
            ),
            Some(host) if host.ip != process.ip => {
                let problem = format!(
                    "has {} for host {}, whose record has {}",
                    process.ip, host.id, host.ip
                );
                report.push(Fault::data(location(), problem).fix(CREATE_AGAIN));
            }
            Some(_) => {}
        }
        if let Err(fault) = process.check() {
            report.push(fault);
        }
        if let Some(name) = &process.server_name
            && let Err(why) = record::job_name(name)
        {
            report.push(
                Fault::data(
                    location(),
                    format!("server_name {name:?} is not a name: {why}"),
                )
                .fix(CREATE_AGAIN),
            );
        }
        for name in process.env.keys().chain(process.env_b64.keys()) {
            if !is_variable_name(name) {
                report.push(
                    Fault::data(location(), format!("{name:?} is not a variable's name"))
                        .fix("correct the edited records"),
                );
            }
        }
    }
    report.0.extend(mixed(processes));
    let serves = |process: &Process| process.service;
    if processes.iter().any(serves) && processes.iter().all(Process::serves) {
        let fault = Fault::data(
            "stdin",
            "all programs are services, so the job would never end",
        );
        report.push(fault.fix("plan the program that they serve, too, with another dgl-env"));
    }
    report.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_their_trainers_are_two_jobs() {
        let process = |role, server_name: Option<&str>| Process {
            server_name: server_name.map(str::to_owned),
            ..Process::new(0, 0, record::IpAddr::default(), role, 0)
        };
        let server = |name| process(Role::Server, name);
        let trainer = |name| process(Role::Trainer, name);
        let table = [
            ([server(Some("g")), server(Some("g"))], false, None),
            ([trainer(Some("g")), trainer(Some("g"))], false, Some("g")),
            ([server(None), trainer(None)], false, None),
            ([server(Some("g")), trainer(Some("g"))], true, None),
            ([trainer(Some("g")), trainer(Some("h"))], true, Some("g")),
            ([trainer(Some("g")), trainer(None)], true, Some("g")),
        ];
        for (processes, is_mixed, name) in table {
            assert_eq!(mixed(&processes).is_some(), is_mixed, "{processes:?}");
            assert_eq!(used_servers(&processes), name, "{processes:?}");
        }
    }
}
