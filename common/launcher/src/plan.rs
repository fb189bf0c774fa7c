//! The plan of a job and its processes.

use job::Rules;
use record::error::{Fault, Report};
use record::{Host, Process, Role, host_of, is_variable_name};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const CREATE_AGAIN: &str = "create the stream again, starting with ipconf-check";

/// The plan of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobPlan {
    /// The job's name.
    pub name: String,
    /// The random token that the environment of its processes carries.
    pub token: String,
    /// How long a host may send nothing before it counts as lost. A host that receives nothing from
    /// the launcher for this long ends its part of the job.
    pub host_timeout: Duration,
    /// Whether the hosts are checked before the start.
    pub preflight: bool,
    /// The rules by which the job ends.
    pub rules: Rules,
    /// Whether the launcher runs on the first host and outlives the tool that started it.
    pub detach: bool,
    /// How many attempts have failed before.
    pub attempt: u32,
    /// The interval of the records of used resources; `None` without them.
    pub sample: Option<Duration>,
    /// When stacks are sampled for a profile; `None` without one.
    pub profile: Option<ProfileTimes>,
    /// Whether it gets a private /dev/shm on each host.
    pub private_shm: bool,
    /// How long it waits for the end of other jobs that use what it needs.
    pub wait: Option<Duration>,
    /// How often it is restarted if it fails.
    pub restart: u32,
}

/// When the stacks of a job are sampled, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileTimes {
    pub time: Duration,
    /// The delay after all processes were started.
    pub after: Duration,
}

/// The processes of a stream: persistent graph servers, which are a separate job, and all others,
/// which may use them.
pub struct SplitProcesses {
    /// The name of the servers.
    pub servers: Option<String>,
    /// All processes; the persistent servers come first.
    pub processes: Vec<Process>,
    persistent: usize,
}

impl SplitProcesses {
    /// Splits the processes; there may be servers of only one name.
    pub fn of(processes: Vec<Process>) -> Result<SplitProcesses, Report> {
        let servers = processes
            .iter()
            .find_map(|process| process.server_name.clone());
        if let Some(other) = processes
            .iter()
            .find(|process| process.server_name != servers)
        {
            let problem = format!(
                "has server_name {:?}, and another record {:?}",
                other.server_name, servers
            );
            let fault = Fault::data(format!("process record {}", other.id), problem);
            return Err(fault
                .fix("create the stream again, with one dgl-env")
                .report());
        }
        let is_persistent = |process: &Process| servers.is_some() && process.role == Role::Server;
        let (mut processes, others): (Vec<_>, Vec<_>) =
            processes.into_iter().partition(is_persistent);
        let persistent = processes.len();
        processes.extend(others);
        Ok(SplitProcesses {
            servers,
            processes,
            persistent,
        })
    }

    /// The persistent servers, which are started unless they already run.
    pub fn persistent(&self) -> &[Process] {
        &self.processes[..self.persistent]
    }

    /// The other processes.
    pub fn others(&self) -> &[Process] {
        &self.processes[self.persistent..]
    }
}

/// Checks every process record, and that its host is in the stream.
pub fn check(hosts: &[Host], processes: &[Process]) -> Result<(), Report> {
    let mut report = Report::default();
    for process in processes {
        let location = || format!("process record {}", process.id);
        match host_of(hosts, process.host) {
            None => report.push(
                Fault::data(
                    location(),
                    format!("there is no host {} in the stream", process.host),
                )
                .fix(CREATE_AGAIN),
            ),
            Some(host) if host.ip != process.ip => {
                let problem = format!(
                    "says {} for host {}, whose record says {}",
                    process.ip, host.id, host.ip
                );
                report.push(Fault::data(location(), problem).fix(CREATE_AGAIN));
            }
            Some(_) => {}
        }
        if let Err(fault) = process.check() {
            report.push(fault);
        }
        // the name becomes that of a directory on the host
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
                        .fix("correct what was edited"),
                );
            }
        }
    }
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
