//! Tables for people: jobs with their processes, and the results.

use indexmap::IndexMap;
use record::term;
use record::{Found, Reaped, Role};
use std::collections::BTreeSet;
use std::time::Duration;

/// A line for each job with its totals, and below it a line for each process.
pub fn table(found: &[Found]) -> String {
    let mut jobs: IndexMap<&str, Vec<&Found>> = IndexMap::new();
    found
        .iter()
        .for_each(|process| jobs.entry(&process.job).or_default().push(process));
    jobs.into_iter()
        .map(|(name, all)| job_lines(name, &all))
        .collect::<Vec<_>>()
        .join("\n")
}

fn job_lines(name: &str, all: &[&Found]) -> String {
    let mut text = format!("job {}: {}\n", term::plain(name), totals(all));
    text += &format!(
        "{:>6}  {:<11}  {:>8}  {:>10}  {:>10}  {:>7}  {:>10}  {:<11}  command\n",
        "host", "role", "pid", "age", "CPU", "memory", "silent for", "ports"
    );
    text.extend(all.iter().map(|process| process_line(process)));
    text
}

/// The whole job's age, hosts, roles, CPU time, memory and ports.
fn totals(all: &[&Found]) -> String {
    let hosts: BTreeSet<u32> = all.iter().map(|process| process.host).collect();
    let age = Duration::from_secs(all.iter().map(|process| process.age_s).max().unwrap_or(0));
    let mut totals = vec![term::seconds(age), term::count(hosts.len() as u64, "host")];
    let roles: BTreeSet<Role> = all.iter().filter_map(|process| process.role).collect();
    totals.extend(roles.into_iter().map(|role| count_of(role, all)));
    let cpu_s: f64 = all.iter().map(|process| process.cpu_s).sum();
    if cpu_s >= 1.0 {
        let cpu = Duration::try_from_secs_f64(cpu_s).unwrap_or_default();
        totals.push(format!("{} of CPU", term::seconds(cpu)));
    }
    totals.push(term::bytes(memory(&hosts, all)));
    if let Some(groups) = all.iter().find_map(|process| process.groups) {
        totals.push(format!("{} served", term::count(groups.into(), "group")));
    }
    let ports: BTreeSet<u16> = all
        .iter()
        .flat_map(|process| process.ports.iter().copied())
        .collect();
    if !ports.is_empty() {
        totals.push(format!("ports {}", joined(&ports)));
    }
    totals.join(", ")
}

/// How many processes of a role a job has, in words; samplers have the rank of their trainer and
/// count with it.
fn count_of(role: Role, all: &[&Found]) -> String {
    let ranks: BTreeSet<_> = all
        .iter()
        .filter(|process| process.role == Some(role))
        .map(|process| (process.rank, process.rank.map_or(process.host, |_| 0)))
        .collect();
    role.count(ranks.len())
}

/// In bytes. Shared memory, which several processes map, exists once on each host.
fn memory(hosts: &BTreeSet<u32>, all: &[&Found]) -> u64 {
    let shared = hosts.iter().map(|host| {
        let here = all.iter().filter(|process| process.host == *host);
        here.map(|process| process.shm_bytes).max().unwrap_or(0)
    });
    let own = all
        .iter()
        .map(|process| process.rss_bytes.saturating_sub(process.shm_bytes));
    own.chain(shared).fold(0, u64::saturating_add)
}

fn process_line(process: &Found) -> String {
    let rank = process
        .rank
        .map_or_else(String::new, |rank| format!(" {rank}"));
    let role = process.role.as_ref().map_or("-", Role::name);
    let role = format!("{role}{rank}");
    let time = |seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        term::seconds(Duration::from_secs(time.as_secs()))
    };
    let age = term::seconds(Duration::from_secs(process.age_s));
    let memory = term::bytes(process.rss_bytes);
    let (cpu, silent) = (
        time(process.cpu_s),
        process.silent_s.map_or_else(String::new, time),
    );
    let (ports, command) = (joined(&process.ports), term::plain(&process.command));
    format!(
        "{:>6}  {role:<11}  {:>8}  {age:>10}  {cpu:>10}  {memory:>7}  {silent:>10}  \
         {ports:<11}  {command}\n",
        process.host, process.pid
    )
}

fn joined<'a>(ports: impl IntoIterator<Item = &'a u16>) -> String {
    let ports: Vec<String> = ports.into_iter().map(u16::to_string).collect();
    ports.join(" ")
}

/// A line for each host and job.
pub fn ended(reaped: &[Reaped]) -> String {
    if reaped.is_empty() {
        return String::new();
    }
    let mut text = format!("{:>6}  {:<16}  what was done\n", "host", "job");
    for result in reaped {
        let files = format!(
            "{} removed from /dev/shm",
            term::count(result.shm_files.into(), "file")
        );
        let processes = term::count(result.processes.into(), "process");
        let done = match &result.signal {
            Some(signal) => format!("{processes} got SIG{signal}"),
            None if result.job.is_empty() => files,
            None => format!(
                "{processes} ended, {files}; {}",
                result.error.as_deref().unwrap_or("nothing is left")
            ),
        };
        text += &format!(
            "{:>6}  {:<16}  {}\n",
            result.host,
            term::plain(&result.job),
            term::plain(&done)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(host: u32, pid: u32, role: Role, rank: u32, ports: &[u16], shm_kb: u64) -> Found {
        Found {
            host,
            job: "try7".to_owned(),
            pid,
            role: Some(role),
            rank: Some(rank),
            age_s: 75,
            cpu_s: 0.1,
            silent_s: (role == Role::Trainer).then_some(601.5),
            rss_bytes: (1000 + shm_kb) * 1024,
            shm_bytes: shm_kb * 1024,
            ports: ports.to_vec(),
            groups: None,
            command: "python3 train.py".to_owned(),
        }
    }

    #[test]
    fn a_job_is_one_table() {
        let all = [
            found(0, 10, Role::Server, 0, &[30050], 500),
            found(0, 11, Role::Trainer, 0, &[29500], 500),
            found(0, 12, Role::Trainer, 0, &[], 0),
            found(1, 20, Role::Server, 1, &[30050], 500),
            found(1, 21, Role::Trainer, 1, &[], 500),
        ];
        let mut served = all.to_vec();
        served[0].groups = Some(1);
        served[1].cpu_s = 61.0;
        assert!(
            table(&served).contains("2 trainers, 1 min 1 s of CPU, 6.1 MB, 1 group served, ports"),
            "{}",
            table(&served)
        );
        let text = table(&all);
        let head =
            "job try7: 1 min 15 s, 2 hosts, 2 servers, 2 trainers, 6.1 MB, ports 29500 30050\n";
        assert!(text.starts_with(head), "{text}");
        let most = Found {
            rss_bytes: u64::MAX,
            shm_bytes: 0,
            ..all[0].clone()
        };
        assert!(
            table(&[most.clone(), most]).starts_with("job try7: "),
            "numbers that no host can have"
        );
        assert_eq!(text.lines().count(), 2 + all.len());
        let lines: Vec<&str> = text.lines().collect();
        let columns =
            "  host  role              pid         age         CPU   memory  silent for  ports";
        assert!(lines[1].starts_with(columns), "{text}");
        assert!(lines[3].contains(" 10 min 1 s  29500 "), "{text}");
        assert!(!lines[2].contains("min 1 s"), "nobody knows: {text}");
    }

    #[test]
    fn nothing_that_a_host_says_steers_the_terminal() {
        let mut process = found(0, 1, Role::Worker, 0, &[], 0);
        (process.job, process.command) = ("\u{1b}]0;x\u{7}".to_owned(), "a\rb\n".to_owned());
        let reaped = Reaped {
            job: "\u{9b}2J".to_owned(),
            error: Some("\u{1b}c".to_owned()),
            ..Reaped::default()
        };
        let text = table(&[process]) + &ended(&[reaped]);
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        assert_eq!(text.lines().count(), 3 + 2);
    }
}
