//! What is asked of a host, and what its answer means.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::quote;
use common::record::{Found, Reaped, Role};
use common::remote::JOB_SH;
use common::term;
use indexmap::IndexMap;
use std::collections::BTreeSet;
use std::time::Duration;

const HOST_SH: &str = include_str!("host.sh");
/// A command is shown up to here.
const COMMAND_CHARS: usize = 200;

/// What to do.
pub enum What<'a> {
    /// Show all.
    List,
    /// End one job.
    Job(&'a str),
    /// End all.
    All,
    /// Send processes of a job a signal.
    Signal {
        /// The job.
        job: &'a str,
        /// Of this role only.
        role: Option<Role>,
        /// This one of them only.
        rank: Option<u32>,
        /// Its name, without SIG.
        signal: &'a str,
    },
    /// Remove shared memory that nobody uses.
    StaleShm,
}

/// The script, the same for every host.
pub fn script(what: &What<'_>, grace: Duration) -> Vec<u8> {
    let (verb, wanted, of, name) = match what {
        What::List => ("list", "", String::new(), ""),
        What::Job(name) => ("job", *name, String::new(), ""),
        What::All => ("all", "", String::new(), ""),
        What::Signal { job, role, rank, signal } => {
            let (role, rank) = (role.map_or("", Role::name), rank.map_or(String::new(), |rank| rank.to_string()));
            ("signal", *job, format!("role={role} rank={rank} "), *signal)
        }
        What::StaleShm => ("shm", "", String::new(), ""),
    };
    let mut text = format!("what={verb} grace={} {of}signal={name} wanted=", grace.as_millis().div_ceil(1000)).into_bytes();
    text.extend(quote::sh(wanted));
    text.push(b'\n');
    text.extend_from_slice(JOB_SH.as_bytes());
    text.extend_from_slice(HOST_SH.as_bytes());
    text
}

/// A line of the script.
#[derive(Debug)]
pub enum Said {
    /// A process of a job.
    Found(Found),
    /// A job was ended or signalled, or shared memory was removed.
    Reaped(Reaped),
}

/// Reads a line; `None` for what is none of the script's.
pub fn said(host: u32, line: &str, signal: Option<&str>) -> Option<Said> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["found", pid, age, rss, shm, ports, role, rank, groups, job, command] => {
            let command = text(command)?.trim_end().chars().take(COMMAND_CHARS).collect();
            let kilobytes = |word: &str| word.parse::<u64>().map_or(0, |count| count.saturating_mul(1024));
            Some(Said::Found(Found {
                host,
                job: text(job)?,
                pid: pid.parse().ok()?,
                role: (role != "-").then(|| role.to_owned()),
                rank: rank.parse().ok(),
                age_s: age.parse().unwrap_or(0),
                rss_bytes: kilobytes(rss),
                shm_bytes: kilobytes(shm),
                ports: ports_of(ports),
                groups: groups.parse().ok(),
                command,
            }))
        }
        ["reaped", job, processes, shm, left] => {
            let left = text(left)?;
            let left = left.trim();
            let error = (!left.is_empty()).then(|| format!("could not be ended: process {}", left.replace(' ', ", ")));
            let (processes, shm_files) = (processes.parse().ok()?, shm.parse().unwrap_or(0));
            Some(Said::Reaped(Reaped { host, job: text(job)?, ok: error.is_none(), processes, shm_files, error, signal: None }))
        }
        ["signalled", job, processes] => {
            let (job, processes) = (text(job)?, processes.parse().ok()?);
            Some(Said::Reaped(Reaped { host, job, ok: true, processes, signal: signal.map(str::to_owned), ..Reaped::default() }))
        }
        ["shm", files] => Some(Said::Reaped(Reaped { host, ok: true, shm_files: files.parse().ok()?, ..Reaped::default() })),
        _ => None,
    }
}

/// `:` and base64.
fn text(word: &str) -> Option<String> {
    let bytes = BASE64.decode(word.strip_prefix(':')?).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// A process that listens on all addresses, IPv4 and IPv6, says it twice.
fn ports_of(words: &str) -> Vec<u16> {
    let ports: BTreeSet<u16> = words.split(',').filter_map(|word| word.parse().ok()).collect();
    ports.into_iter().collect()
}

/// One record a job: a name may have been used twice.
pub fn merged(all: Vec<Reaped>) -> Vec<Reaped> {
    let mut merged: Vec<Reaped> = Vec::new();
    for one in all {
        match merged.iter_mut().find(|other| other.host == one.host && other.job == one.job) {
            Some(other) => {
                other.ok &= one.ok;
                other.processes = other.processes.saturating_add(one.processes);
                other.shm_files = other.shm_files.saturating_add(one.shm_files);
                other.error = other.error.take().or(one.error);
            }
            None => merged.push(one),
        }
    }
    merged
}

/// The jobs as people read them: of each a line with all it has, and below it a line a process.
pub fn table(found: &[Found]) -> String {
    let mut jobs: IndexMap<&str, Vec<&Found>> = IndexMap::new();
    found.iter().for_each(|one| jobs.entry(&one.job).or_default().push(one));
    jobs.into_iter().map(|(name, all)| job_lines(name, &all)).collect::<Vec<_>>().join("\n")
}

fn job_lines(name: &str, all: &[&Found]) -> String {
    let ranks = |role: &str| {
        let ranks: BTreeSet<_> =
            all.iter().filter(|one| one.role.as_deref() == Some(role)).map(|one| (one.rank, one.rank.map_or(one.host, |_| 0))).collect();
        (!ranks.is_empty()).then(|| term::count(ranks.len() as u64, role))
    };
    let hosts: BTreeSet<u32> = all.iter().map(|one| one.host).collect();
    let ports: BTreeSet<u16> = all.iter().flat_map(|one| one.ports.iter().copied()).collect();
    // what is shared is there once a host
    let shared = hosts.iter().map(|host| all.iter().filter(|one| one.host == *host).map(|one| one.shm_bytes).max().unwrap_or(0));
    let own = all.iter().map(|one| one.rss_bytes.saturating_sub(one.shm_bytes));
    let memory = own.chain(shared).fold(0, u64::saturating_add);
    let age = Duration::from_secs(all.iter().map(|one| one.age_s).max().unwrap_or(0));
    let mut head = vec![term::seconds(age), term::count(hosts.len() as u64, "host")];
    head.extend(["server", "trainer", "worker"].into_iter().filter_map(ranks));
    head.push(term::bytes(memory));
    if let Some(groups) = all.iter().find_map(|one| one.groups) {
        head.push(format!("{} served", term::count(groups.into(), "group")));
    }
    if !ports.is_empty() {
        head.push(format!("ports {}", ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")));
    }
    let mut text = format!("job {}: {}\n", term::plain(name), head.join(", "));
    text += &format!("{:>6}  {:<11}  {:>8}  {:>10}  {:>7}  {:<11}  command\n", "host", "role", "pid", "age", "memory", "ports");
    for one in all {
        let rank = one.rank.map_or_else(String::new, |rank| format!(" {rank}"));
        let role = format!("{}{rank}", term::plain(one.role.as_deref().unwrap_or("-")));
        let (age, memory) = (term::seconds(Duration::from_secs(one.age_s)), term::bytes(one.rss_bytes));
        let ports = one.ports.iter().map(u16::to_string).collect::<Vec<_>>().join(" ");
        let command = term::plain(&one.command);
        text += &format!("{:>6}  {role:<11}  {:>8}  {age:>10}  {memory:>7}  {ports:<11}  {command}\n", one.host, one.pid);
    }
    text
}

/// What was done, a line a host and job below a line that names the columns.
pub fn ended(reaped: &[Reaped]) -> String {
    let row = |host: &str, job: &str, what: &str| format!("{host:>4}  {job:<16}  {what}\n");
    let line = |one: &Reaped| {
        let processes = term::count(one.processes.into(), "process");
        let files = term::count(one.shm_files.into(), "file");
        let (host, job) = (one.host.to_string(), term::plain(&one.job));
        match (&one.signal, &*job) {
            (Some(signal), job) => row(&host, job, &format!("{processes} got SIG{signal}")),
            (None, "") => row(&host, "-", &format!("{files} removed from /dev/shm")),
            (None, job) => {
                let end = term::plain(one.error.as_deref().unwrap_or("nothing is left"));
                row(&host, job, &format!("{processes} ended, {files} removed from /dev/shm; {end}"))
            }
        }
    };
    if reaped.is_empty() {
        return String::new();
    }
    row("host", "job", "what was done") + &reaped.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b64(text: &str) -> String {
        format!(":{}", BASE64.encode(text))
    }

    fn found(host: u32, pid: u32, role: &str, rank: u32, ports: &str, shm: u32) -> Found {
        let line = format!("found {pid} 75 {} {shm} {ports} {role} {rank} - {} {}", 1000 + shm, b64("try7"), b64("python3 train.py"));
        match said(host, &line, None) {
            Some(Said::Found(found)) => found,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines() {
        let line = format!("found 7 5 4 1 30051,30050,30050 server 1 3 {} {}", b64("a"), b64(&"x ".repeat(300)));
        let Some(Said::Found(one)) = said(2, &line, None) else { panic!("{line}") };
        assert_eq!((one.host, one.pid, one.rank, one.groups, one.command.len()), (2, 7, Some(1), Some(3), 200));
        assert_eq!((one.rss_bytes, one.shm_bytes, &one.ports[..]), (4096, 1024, &[30050, 30051][..]));
        let Some(Said::Found(one)) = said(0, &format!("found 7 5 - - - - - - {} {}", b64("a"), b64("sh")), None) else { panic!() };
        assert_eq!((one.role, one.rank, one.ports, one.rss_bytes), (None, None, vec![], 0));

        let most = u64::MAX;
        let Some(Said::Found(one)) = said(0, &format!("found 7 {most} {most} {most} - - - - {} {}", b64("a"), b64("sh")), None) else {
            panic!()
        };
        assert_eq!((one.age_s, one.rss_bytes, one.shm_bytes), (most, most, most));
        assert!(table(&[one.clone(), Found { host: 1, ..one }]).starts_with("job a: "), "numbers that no host can have");

        let reaped = |line: &str| match said(0, line, Some("ABRT")) {
            Some(Said::Reaped(one)) => (one.ok, one.processes, one.shm_files, one.signal, one.error),
            other => panic!("{line}: {other:?}"),
        };
        let abrt = Some("ABRT".to_owned());
        assert_eq!(reaped(&format!("reaped {} 2 1 {}", b64("a"), b64(""))), (true, 2, 1, None, None));
        let left = Some("could not be ended: process 4, 5".to_owned());
        assert_eq!(reaped(&format!("reaped {} 2 1 {}", b64("a"), b64("4 5 "))), (false, 2, 1, None, left));
        assert_eq!(reaped(&format!("signalled {} 3", b64("a"))), (true, 3, 0, abrt, None));
        assert_eq!(reaped("shm 16"), (true, 0, 16, None, None));
        assert!(said(0, "motd", None).is_none());
        let many = Reaped { job: "a".into(), ok: true, processes: u32::MAX, shm_files: 1, ..Reaped::default() };
        assert_eq!(merged(vec![many.clone(), many])[0].processes, u32::MAX);
    }

    #[test]
    fn what_was_done_has_columns() {
        let one = |job: &str, signal: Option<&str>, error: Option<&str>| Reaped {
            host: 3,
            job: job.into(),
            signal: signal.map(str::to_owned),
            processes: 2,
            shm_files: 1,
            error: error.map(str::to_owned),
            ..Reaped::default()
        };
        let table = [
            (one("try7", None, None), "   3  try7              2 processes ended, 1 file removed from /dev/shm; nothing is left"),
            (one("try7", Some("ABRT"), None), "   3  try7              2 processes got SIGABRT"),
            (one("", None, None), "   3  -                 1 file removed from /dev/shm"),
            (one("a\x1b[2J", None, Some("left\n")), "   3  a\\x1b[2J          2 processes ended, 1 file removed from /dev/shm; left\\n"),
        ];
        for (reaped, line) in table {
            assert_eq!(ended(&[reaped]), format!("host  job               what was done\n{line}\n"));
        }
        assert_eq!(ended(&[]), "");
    }

    #[test]
    fn a_job_is_one_table() {
        let all = [
            found(0, 10, "server", 0, "30050", 500),
            found(0, 11, "trainer", 0, "29500", 500),
            found(0, 12, "trainer", 0, "-", 0),
            found(1, 20, "server", 1, "30050", 500),
            found(1, 21, "trainer", 1, "-", 500),
        ];
        let mut served = all.to_vec();
        served[0].groups = Some(1);
        assert!(table(&served).contains("6.1 MB, 1 group served, ports"));
        let text = table(&all);
        let head = "job try7: 1 min 15 s, 2 hosts, 2 servers, 2 trainers, 6.1 MB, ports 29500 30050\n";
        assert!(text.starts_with(head), "{text}");
        assert_eq!(text.lines().count(), 2 + all.len());
    }
}
