//! Words the problems that the preflight finds, and their fixes.

use record::error::Fault;
use record::{Host, cpus, term};
use std::time::Duration;
use wire::preflight::{Claimant, Claimed, Module, Owner, SharedFiles, Subject};

pub const COPY_AGAIN: &str = "copy it again, to all hosts, with part-map and part-push";
pub const OPEN_PORTS: &str = "open between all hosts the ports of ip_config.txt and those of \
    net.ipv4.ip_local_port_range: DGL's servers connect to such ports of their clients, and \
    torch's processes to those of each other; if they are closed, the job hangs";
pub const ONE_MTU: &str = "give all interfaces between them the same MTU: compare ip link on both \
    hosts, and check tunnels between them and jumbo frames in the switch; to try it, ip link \
    set dev INTERFACE mtu 1400 on both; otherwise the job hangs";
const OTHER_PORT: &str = "choose another port in ip_config.txt, or --master-port in dgl-env";
const OVERWRITE: &str = "jobs of DGL on one host overwrite each other's features without a warning";
/// How many characters of a text from a host are shown.
const SHOWN: usize = 300;
/// How many processes of one job are shown.
const SHOWN_PIDS: usize = 20;

/// A problem in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub problem: String,
    /// The fix, if it is known.
    pub fix: Option<String>,
    /// Whether the end of another job will solve the problem.
    pub passes: bool,
    /// What is known of the other hosts if they run the same command and have no problem.
    pub others: Option<&'static str>,
}

impl Problem {
    pub fn new(problem: impl Into<String>, fix: impl Into<String>) -> Problem {
        Problem {
            problem: problem.into(),
            fix: Some(fix.into()),
            passes: false,
            others: None,
        }
    }

    fn that_passes(self, passes: bool) -> Problem {
        Problem { passes, ..self }
    }

    /// The fault of one or several hosts.
    pub fn fault(self, location: String) -> Fault {
        Fault {
            fix: self.fix,
            ..Fault::unreachable(location, self.problem)
        }
    }
}

/// Hosts in a message: a single one by its name, several by their numbers.
pub fn locations(hosts: &[&Host]) -> String {
    match hosts {
        [host] => host.location(),
        _ => format!("hosts {}", cpus::list(hosts.iter().map(|host| host.id))),
    }
}

/// A problem that one host found by itself. The host words the problem, but never the fix.
pub fn problem(about: Subject, problem: &str) -> Problem {
    let fix = match about {
        Subject::File => {
            "correct the command or --workspace, or copy the job there with part-map and part-push"
        }
        Subject::Permission => "let this user read it there",
        Subject::PartitionConfig => COPY_AGAIN,
        Subject::SharedMemory => {
            "make it larger: mount -o remount,size=… /dev/shm, or docker run --shm-size; or more \
             partitions and hosts"
        }
        Subject::PrivateSharedMemory => {
            "run as root there, or allow users to create namespaces: sysctl \
             kernel.unprivileged_userns_clone=1 (Debian), \
             kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), docker run --cap-add \
             SYS_ADMIN"
        }
        Subject::OpenFiles => {
            "raise the hard limit there: LimitNOFILE= of its sshd, or /etc/security/limits.conf"
        }
        Subject::Port => OTHER_PORT,
        Subject::Address => "write the address that the host has into ip_config.txt",
        Subject::Command if problem.contains('/') => {
            "install it there, or correct its path, which is relative to the workspace unless it \
             begins with /"
        }
        Subject::Command => {
            "install it there, give its whole path, or set PATH with --env or --setup in dgl-env"
        }
        Subject::Shell => {
            "have the file return before that if there is no terminal: in bash, `[[ $- == *i* ]] \
             || return`; or give the command as words after --"
        }
        Subject::ArgumentSizes => {
            "write long values to a file and read it in the program; ulimit -s unlimited before \
             sshd raises the limit of the sum, but not the 128 KiB for a single value"
        }
        Subject::Python => {
            "try it in a shell on that host; --env and --setup of dgl-env are in force"
        }
    };
    let others = (about == Subject::Command).then_some("the other hosts have it");
    Problem {
        others,
        ..Problem::new(plain(problem), fix)
    }
}

/// Large packets between a host and others are lost in one direction.
pub fn large_packets(others: &str, inward: bool) -> String {
    let transfer = match inward {
        true => format!("cannot receive 64 KiB from {others}"),
        false => format!("cannot send 64 KiB to {others}"),
    };
    format!("{transfer}: small packets pass and large ones do not")
}

/// A module that the job's Python lacks. `environment` is whether host-probe was given an
/// environment, which then lacks the module.
pub fn missing_module(
    module: Module,
    executable: &str,
    version: &str,
    environment: bool,
) -> Problem {
    let (module, python, version) = (module.name(), plain(executable), plain(version));
    let fix = match environment {
        true => format!("install {module} into that environment"),
        false => format!(
            "begin the command with the path of the Python that has {module}, or install it there"
        ),
    };
    Problem::new(
        format!("no module named {module} for {python} (Python {version})"),
        fix,
    )
}

/// A host that was lost before the start.
pub fn lost(why: String) -> Problem {
    Problem::new(why, "check that the host is up, then run this again")
}

/// How to end a job that a host has named. Users paste the command, so it only contains a valid
/// name of a job.
fn end_of(job: &str) -> String {
    match record::job_name(job) {
        Ok(job) => format!("ipconf-check ip_config.txt | dgl-reap --job {job}"),
        Err(_) => "dgl-spawn gives no such name; see ipconf-check ip_config.txt | \
            dgl-reap --list"
            .to_owned(),
    }
}

/// A job whose name is in use: two jobs of one name cannot be distinguished.
pub fn name_in_use(name: &str, user: Option<&str>) -> Problem {
    let problem = format!("a job named {name} runs there");
    let problem = match user {
        Some(user) => Problem::new(
            format!("{problem}, of user {}", plain(user)),
            "choose another --job",
        ),
        None => {
            let fix = format!("choose another --job, or end that job: {}", end_of(name));
            Problem::new(problem, fix)
        }
    };
    problem.that_passes(true)
}

/// Processes of a job whose supervisor is gone.
pub fn abandoned(job: &str, pids: &[u32]) -> Problem {
    let pids: Vec<String> = pids.iter().take(SHOWN_PIDS).map(u32::to_string).collect();
    let problem = format!(
        "job {} was left there without a launcher: process {}",
        plain(job),
        pids.join(" ")
    );
    Problem::new(problem, format!("end it: {}", end_of(job)))
}

/// Files of DGL in /dev/shm.
pub fn shared_memory(state: &SharedFiles, files: u64, bytes: u64) -> Problem {
    let amount = format!("{}, {}", term::count(files, "file"), term::bytes(bytes));
    match state {
        SharedFiles::Used(by) => {
            let problem = format!(
                "another job of DGL runs there: {amount} in /dev/shm, mapped by {}",
                owner(by)
            );
            let fix = format!("{OVERWRITE}: wait for its end, or use --private-shm");
            Problem::new(problem, fix).that_passes(by.job.is_some())
        }
        SharedFiles::Stale(file) => Problem::new(
            format!(
                "a job of DGL has left {amount} in /dev/shm, such as {}",
                shown(file)
            ),
            "remove it: ipconf-check ip_config.txt | dgl-reap --stale-shm",
        ),
        SharedFiles::Foreign(user) => Problem::new(
            format!(
                "/dev/shm has {amount} of a job of DGL of user {}, and only that user can see \
                 whether it runs",
                plain(user)
            ),
            "use --private-shm, or ask the user to run dgl-reap --stale-shm",
        ),
    }
}

pub fn port_taken(port: u16, by: &Owner) -> Problem {
    let fix = match (&by.job, &by.user, by.pid) {
        (Some(job), None, _) => format!("end that job: {}", end_of(job)),
        (.., None) => "ask its user what it is".to_owned(),
        (.., Some(_)) => "end that process".to_owned(),
    };
    let problem = format!("port {port} is taken by {}", owner(by));
    Problem::new(problem, format!("{fix}; or {OTHER_PORT}")).that_passes(by.job.is_some())
}

/// What another job has claimed, other than the name. `is_alone` is whether this is the only
/// conflict: only then the process and its age are shown, which differ from host to host.
pub fn claimed(taken: &[Claimed], by: &Claimant, is_alone: bool) -> Problem {
    let ports: Vec<u32> = taken
        .iter()
        .filter_map(|claimed| match claimed {
            Claimed::Port(port) => Some(u32::from(*port)),
            Claimed::SharedMemory | Claimed::Name => None,
        })
        .collect();
    let claimant = claimant(by, is_alone);
    let end = match (&by.job, &by.user) {
        (Some(job), None) => format!(
            "wait for its end with --wait 1h, or end it: {}",
            end_of(job)
        ),
        _ => "wait for its end with --wait 1h".to_owned(),
    };
    let (noun, verb) = match ports.len() {
        0 => {
            let fix = format!("{OVERWRITE}: {end}; or use --private-shm");
            let problem = format!("another job of DGL runs there: {claimant}");
            return Problem::new(problem, fix).that_passes(true);
        }
        1 => ("port", "is"),
        _ => ("ports", "are"),
    };
    let memory = match taken.contains(&Claimed::SharedMemory) {
        true => ", and /dev/shm,",
        false => "",
    };
    let ports = cpus::list(ports);
    let problem = format!("{noun} {ports}{memory} {verb} taken by {claimant}");
    Problem::new(problem, format!("{end}; or {OTHER_PORT}")).that_passes(true)
}

/// The holder of a claim: `job a of user b (process 12, for 3.0 s)`.
fn claimant(by: &Claimant, with_process: bool) -> String {
    let job = match &by.job {
        Some(job) => format!("job {}", plain(job)),
        None => "a job that does not answer".to_owned(),
    };
    let process = match by.pid.filter(|_| with_process) {
        Some(pid) => {
            let age = term::seconds(Duration::from_millis(by.age_ms));
            format!(" (process {pid}, for {age})")
        }
        None => String::new(),
    };
    format!("{job}{}{process}", optional(" of user ", &by.user, ""))
}

/// A process in words: `process 12 (python3 train.py) of job a`, with its user if that is another
/// one.
fn owner(by: &Owner) -> String {
    let process = match by.pid {
        Some(pid) => format!("process {pid}{}", optional(" (", &by.command, ")")),
        None => "a process".to_owned(),
    };
    let job = optional(" of job ", &by.job, "");
    let user = optional(" of user ", &by.user, "");
    let unseen = match (by.pid, &by.user) {
        (None, None) => " that cannot be seen there, perhaps in a container",
        _ => "",
    };
    format!("{process}{job}{user}{unseen}")
}

fn optional(before: &str, text: &Option<String>, behind: &str) -> String {
    match text {
        Some(text) => format!("{before}{}{behind}", plain(text)),
        None => String::new(),
    }
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
