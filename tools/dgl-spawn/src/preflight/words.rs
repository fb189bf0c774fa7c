//! Findings of one host in words for people, with their cures.

use super::reachability;
use record::term;
use std::time::Duration;
use wire::preflight::{Claimant, Claimed, Finding, Owner, SharedFiles};

pub const COPY_ANEW: &str = "copy it anew, to all hosts, with part-map and part-push";
const COPY_THERE: &str = "copy the job there with part-map and part-push, or correct --workspace";
const OTHER_PORT: &str = "choose another port in ip_config.txt, or --master-port in dgl-env";
const PRIVATE_SHM: &str = "be root there, or allow namespaces to users: sysctl \
    kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 \
    (Ubuntu), docker run --cap-add SYS_ADMIN";
/// How many characters are shown of a text that a host has sent.
const SHOWN: usize = 300;
/// How many processes of one job are shown.
const SHOWN_PIDS: usize = 20;

/// A problem in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// What is wrong.
    pub problem: String,
    /// The cure, if it is known.
    pub fix: Option<String>,
    /// Whether the problem will be gone when another job has ended.
    pub passes: bool,
}

impl Words {
    fn new(problem: String, fix: &str) -> Words {
        Words {
            problem,
            fix: Some(fix.to_owned()),
            passes: false,
        }
    }

    fn that_passes(self, passes: bool) -> Words {
        Words { passes, ..self }
    }
}

/// A finding in words; `None` if it has to be compared with the records or with other hosts, which
/// diagnosis.rs does.
pub fn of(finding: &Finding) -> Option<Words> {
    // each is named here, so that a new one does not go unnoticed
    match finding {
        Finding::NoFolder { .. }
        | Finding::NoFile { .. }
        | Finding::Unreadable { .. }
        | Finding::NoPartition { .. }
        | Finding::NoGraph { .. } => of_files(finding),
        Finding::SmallSharedMemory { .. }
        | Finding::NoPrivateSharedMemory { .. }
        | Finding::FewOpenFiles { .. } => of_limits(finding),
        Finding::NoCommand { .. } | Finding::NoPython { .. } => of_programs(finding),
        Finding::Abandoned { .. } | Finding::SharedMemory { .. } => of_other_jobs(finding),
        Finding::PortTaken { .. }
        | Finding::PortUnusable { .. }
        | Finding::ForeignAddress { .. } => of_ports(finding),
        Finding::IpConfig
        | Finding::PartitionConfig { .. }
        | Finding::Script { .. }
        | Finding::Elsewhere { .. }
        | Finding::NameInUse
        | Finding::Python { .. }
        | Finding::Listens { .. }
        | Finding::PortLingers { .. }
        | Finding::Unreached { .. } => None,
    }
}

fn of_files(finding: &Finding) -> Option<Words> {
    let (problem, fix) = match finding {
        Finding::NoFolder { path } => (format!("no such folder: {}", shown(path)), COPY_THERE),
        Finding::NoFile { path, similar } => {
            let meant = similar.as_ref().map_or(String::new(), |meant| {
                format!("; did you mean {}?", shown(meant))
            });
            (format!("no such file: {}{meant}", shown(path)), COPY_THERE)
        }
        Finding::Unreadable { path } => (
            format!("cannot be read: {}", shown(path)),
            "let this user read it there",
        ),
        Finding::NoPartition { config, part } => {
            let config = shown(config);
            let problem = format!("{config} has no part-{part}, which is this host's");
            (problem, COPY_ANEW)
        }
        Finding::NoGraph { config, part } => (
            format!("{} names no graph for part-{part}", shown(config)),
            COPY_ANEW,
        ),
        _ => return None,
    };
    Some(Words::new(problem, fix))
}

fn of_limits(finding: &Finding) -> Option<Words> {
    let (problem, fix) = match finding {
        Finding::SmallSharedMemory {
            need_bytes,
            free_bytes,
        } => (
            format!(
                "its part of the graph has {} MiB, and /dev/shm only {} MiB of room",
                need_bytes >> 20,
                free_bytes >> 20
            ),
            "make it larger: mount -o remount,size=… /dev/shm, or docker run --shm-size; or more \
             partitions and hosts",
        ),
        Finding::NoPrivateSharedMemory { error } => (
            format!("no /dev/shm of its own can be made: {}", term::plain(error)),
            PRIVATE_SHM,
        ),
        Finding::FewOpenFiles { limit, need } => (
            format!(
                "a process may have {limit} open files, and a server needs about {need} for the \
                 clients of this job"
            ),
            "raise the hard limit there: LimitNOFILE= of its sshd, or /etc/security/limits.conf",
        ),
        _ => return None,
    };
    Some(Words::new(problem, fix))
}

fn of_programs(finding: &Finding) -> Option<Words> {
    let (problem, fix) = match finding {
        Finding::NoCommand { word } => (
            format!("no such command: {}", shown(word)),
            "install it there, give its whole path, or set PATH with --env or --setup in dgl-env",
        ),
        Finding::NoPython { said } => (
            format!("its Python does not run: {}", plain(said)),
            "try it in a shell on that host; --env and --setup of dgl-env are in force",
        ),
        _ => return None,
    };
    Some(Words::new(problem, fix))
}

/// A module that the job's Python lacks, in words. `environment` is whether host-probe was given
/// one: then that is the one to mend.
pub fn of_missing_module(
    module: &str,
    executable: &str,
    version: &str,
    environment: bool,
) -> Words {
    let (module, python, version) = (plain(module), plain(executable), plain(version));
    let fix = match environment {
        true => format!("install {module} into that environment"),
        false => format!(
            "begin the command with the path of the Python that has {module}, or install it there"
        ),
    };
    Words::new(
        format!("no module named {module} for {python} (Python {version})"),
        &fix,
    )
}

fn of_other_jobs(finding: &Finding) -> Option<Words> {
    match finding {
        Finding::Abandoned { job, pids } => Some(of_abandoned(job, pids)),
        Finding::SharedMemory {
            state,
            files,
            total_bytes,
        } => Some(of_shared_memory(state, *files, *total_bytes)),
        _ => None,
    }
}

fn of_abandoned(job: &str, pids: &[u32]) -> Words {
    let job = plain(job);
    let pids: Vec<String> = pids.iter().take(SHOWN_PIDS).map(u32::to_string).collect();
    Words {
        problem: format!(
            "job {job} was left there without a launcher: process {}",
            pids.join(" ")
        ),
        fix: checked_name(&job)
            .map(|job| format!("end it: ipconf-check ip_config.txt | dgl-reap --job {job}")),
        passes: false,
    }
}

fn of_shared_memory(state: &SharedFiles, files: u64, bytes: u64) -> Words {
    let what = format!("{}, {}", term::count(files, "file"), term::bytes(bytes));
    match state {
        SharedFiles::Used(by) => Words::new(
            format!(
                "another job of DGL runs there: {what} in /dev/shm, mapped by {}",
                owner(by)
            ),
            "jobs of DGL on one host overwrite each other's features without a word: wait for its \
             end, or say --private-shm",
        )
        .that_passes(by.job.is_some()),
        SharedFiles::Stale(file) => Words::new(
            format!(
                "a job of DGL has left {what} in /dev/shm, such as {}",
                shown(file)
            ),
            "remove it: ipconf-check ip_config.txt | dgl-reap --stale-shm",
        ),
        SharedFiles::Foreign(user) => Words::new(
            format!(
                "/dev/shm has {what} of a job of DGL of user {}, and only that user can see \
                 whether it runs",
                plain(user)
            ),
            "say --private-shm, or ask the user for dgl-reap --stale-shm",
        ),
    }
}

fn of_ports(finding: &Finding) -> Option<Words> {
    match finding {
        Finding::PortTaken { port, by } => {
            let fix = match own_job(by) {
                Some(job) => format!(
                    "end that job: ipconf-check ip_config.txt | dgl-reap --job {job}; or \
                     {OTHER_PORT}"
                ),
                None if by.pid.is_none() => {
                    format!("its user can tell what it is; or {OTHER_PORT}")
                }
                None => format!("end that process, or {OTHER_PORT}"),
            };
            let problem = format!("port {port} is taken by {}", owner(by));
            Some(Words::new(problem, &fix).that_passes(by.job.is_some()))
        }
        Finding::PortUnusable { port, error } => {
            let problem = format!("port {port} cannot be bound: {}", plain(error));
            Some(Words::new(problem, OTHER_PORT))
        }
        Finding::ForeignAddress { address } => Some(Words::new(
            format!("{address} is not an address of this host"),
            "write the address that the host has into ip_config.txt",
        )),
        _ => None,
    }
}

/// What another job has claimed, other than the name, in words. `is_alone` tells that no other host
/// or job is in the way: only then are the process and its age shown, which differ from host to
/// host.
pub fn of_claims(what: &[Claimed], by: &Claimant, is_alone: bool) -> Words {
    let ports: Vec<u32> = what
        .iter()
        .filter_map(|claimed| match claimed {
            Claimed::Port(port) => Some(u32::from(*port)),
            Claimed::SharedMemory | Claimed::Name => None,
        })
        .collect();
    let claimant = claimant(by, is_alone);
    let end = match by
        .job
        .as_deref()
        .filter(|_| by.user.is_none())
        .and_then(checked_name)
    {
        Some(job) => format!(
            "wait for its end with --wait 1h, or end it: ipconf-check ip_config.txt | dgl-reap \
             --job {job}"
        ),
        None => "wait for its end with --wait 1h".to_owned(),
    };
    if ports.is_empty() {
        let fix = format!(
            "jobs of DGL on one host overwrite each other's features without a word: {end}; or \
             say --private-shm"
        );
        let problem = format!("another job of DGL runs there: {claimant}");
        return Words::new(problem, &fix).that_passes(true);
    }
    let (noun, verb) = match ports.len() {
        1 => ("port", "is"),
        _ => ("ports", "are"),
    };
    let memory = match what.contains(&Claimed::SharedMemory) {
        true => ", and /dev/shm,",
        false => "",
    };
    let ports = reachability::ranges(&ports);
    let problem = format!("{noun} {ports}{memory} {verb} taken by {claimant}");
    Words::new(problem, &format!("{end}; or {OTHER_PORT}")).that_passes(true)
}

/// A job that has a claim: `job a of user b (process 12, for 3.0 s)`.
fn claimant(by: &Claimant, with_process: bool) -> String {
    let job = by.job.as_deref().map_or_else(
        || "a job that does not answer".to_owned(),
        |job| format!("job {}", plain(job)),
    );
    let user = of_user(by.user.as_deref());
    let process = match (by.pid, with_process) {
        (Some(pid), true) => format!(
            " (process {pid}, for {})",
            term::seconds(Duration::from_millis(by.age_ms))
        ),
        _ => String::new(),
    };
    format!("{job}{user}{process}")
}

/// A process in words: `process 12 (python3 train.py) of job a`, with its user if that is another
/// one.
fn owner(by: &Owner) -> String {
    let command = by
        .command
        .as_deref()
        .map_or(String::new(), |command| format!(" ({})", plain(command)));
    let process = by.pid.map_or_else(
        || "a process".to_owned(),
        |pid| format!("process {pid}{command}"),
    );
    let job = by
        .job
        .as_deref()
        .map_or(String::new(), |job| format!(" of job {}", plain(job)));
    let user = of_user(by.user.as_deref());
    let unseen = match by.pid.is_none() && user.is_empty() {
        true => " that cannot be seen there, perhaps in a container",
        false => "",
    };
    format!("{process}{job}{user}{unseen}")
}

fn of_user(user: Option<&str>) -> String {
    user.map_or(String::new(), |user| format!(" of user {}", plain(user)))
}

/// The name of a job of this user that owns a process, if it can stand in a command to be pasted.
fn own_job(by: &Owner) -> Option<&str> {
    by.job
        .as_deref()
        .filter(|_| by.user.is_none())
        .and_then(checked_name)
}

fn checked_name(job: &str) -> Option<&str> {
    let is_checked = (1..=64).contains(&job.len())
        && job
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    Some(job).filter(|job| is_checked && !job.starts_with('-'))
}

/// A path or a word of a host on one line of a terminal.
pub fn shown(text: &wire::Text) -> String {
    plain(&text.0.to_string_lossy())
}

/// A text of a host on one line of a terminal.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN)
        .collect::<String>()
        .trim_end()
        .to_owned()
}
