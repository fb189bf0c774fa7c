//! What runs: a job, and its processes.

use job::Rules;
use record::error::{Fault, Report};
use record::{Host, Process, Role, host_of, is_variable_name};
use serde::{Deserialize, Serialize};
use std::time::Duration;

const ANEW: &str = "make the stream anew, from ipconf-check on";

/// The facts that distinguish a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobPlan {
    /// The job's name.
    pub name: String,
    /// The token in the environment of its processes: random, so that no other process has it.
    pub token: String,
    /// After how long a silent host is lost. A host that hears nothing from the launcher for as
    /// long ends its part of the job.
    pub host_timeout: Duration,
    /// Whether the hosts are examined before the start.
    pub preflight: bool,
    /// When the job ends although no process or host has failed.
    pub rules: Rules,
    /// Whether the launcher runs on the first host, after the tool that started it has gone.
    pub detach: bool,
    /// How often it was started before, and failed.
    pub attempt: u32,
    /// How often the resources that are used are written as records; `None` for never.
    pub sample: Option<Duration>,
    /// When it is recorded; `None` for never.
    pub profile: Option<ProfileTimes>,
    /// Whether it gets a /dev/shm of its own on each host.
    pub private_shm: bool,
    /// How long it waits for the end of other jobs that are in its way.
    pub wait: Option<Duration>,
    /// How often it is started again if it fails.
    pub restart: u32,
}

/// When a job is recorded, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileTimes {
    pub time: Duration,
    /// From the moment at which all processes are started.
    pub after: Duration,
}

/// The processes of a stream: persistent graph servers, which are a job of their own, and all
/// others, which may use them.
pub struct SplitProcesses {
    /// The name of the servers.
    pub servers: Option<String>,
    /// All processes; those that stay come first.
    pub all: Vec<Process>,
    staying: usize,
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
            return Err(fault.fix("make the stream anew, with one dgl-env").report());
        }
        let stays = |process: &Process| servers.is_some() && process.role == Role::Server;
        let (mut all, others): (Vec<_>, Vec<_>) = processes.into_iter().partition(stays);
        let staying = all.len();
        all.extend(others);
        Ok(SplitProcesses {
            servers,
            all,
            staying,
        })
    }

    /// The persistent servers, which are started unless they are already there.
    pub fn staying(&self) -> &[Process] {
        &self.all[..self.staying]
    }

    /// The other processes.
    pub fn others(&self) -> &[Process] {
        &self.all[self.staying..]
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
                .fix(ANEW),
            ),
            Some(host) if host.ip != process.ip => {
                let problem = format!(
                    "says {} for host {}, whose record says {}",
                    process.ip, host.id, host.ip
                );
                report.push(Fault::data(location(), problem).fix(ANEW));
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
                .fix(ANEW),
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
            "all programs are services, so nothing would end the job",
        );
        report.push(fault.fix("plan the program that they serve too, with another dgl-env"));
    }
    report.check()
}
