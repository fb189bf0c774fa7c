//! Finds this user's jobs on this host, and processes of jobs whose supervisor is gone.

use crate::claim;
use host::processes::{JOB, TOKEN, is_token, line_of};
use host::procfs::{self, Stat};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;
use wire::job::Job;
use wire::preflight::{Problem, Subject};

/// How often to check: a job that is ending appears abandoned for a moment.
const CHECKS: u32 = 3;
const BETWEEN_CHECKS: Duration = Duration::from_millis(300);

/// How many processes of a job are named.
const SHOWN_PIDS: usize = 20;

/// Finds remains of earlier jobs, and whether a job with the same name runs.
pub fn check(job: &Job) -> Vec<Problem> {
    let mut problems = Vec::new();
    for checks_left in (0..CHECKS).rev() {
        problems = judge(&processes(), job, claim::is_alive);
        let is_settled = !problems
            .iter()
            .any(|problem| problem.about == Subject::Abandoned);
        if is_settled || checks_left == 0 {
            break;
        }
        std::thread::sleep(BETWEEN_CHECKS);
    }
    problems
}

pub fn others_run(job: &Job) -> bool {
    processes().iter().any(|process| process.token != job.token)
}

/// A process that carries the token of a job.
#[derive(Clone, Debug)]
struct MarkedProcess {
    pid: i32,
    token: String,
    /// Supervisors and watchers have none.
    name: Option<String>,
    below_agent: bool,
}

fn judge(
    processes: &[MarkedProcess],
    own_job: &Job,
    is_claimed: impl Fn(&str, &str) -> bool,
) -> Vec<Problem> {
    let mut jobs: BTreeMap<&str, Vec<&MarkedProcess>> = BTreeMap::new();
    for process in processes
        .iter()
        .filter(|process| process.token != own_job.token)
    {
        jobs.entry(&process.token).or_default().push(process);
    }
    let mut problems = Vec::new();
    for (token, members) in jobs {
        let name = members.iter().find_map(|process| process.name.clone());
        let watched = members
            .iter()
            .any(|process| process.name.is_none() || process.below_agent);
        match name {
            Some(name) if watched || is_claimed(&name, token) => {
                if name == own_job.name {
                    problems.push(claim::name_in_use(&name, None));
                }
            }
            name => {
                let pids = members.iter().map(|process| process.pid.to_string());
                let pids = pids.take(SHOWN_PIDS).collect::<Vec<_>>().join(" ");
                problems.extend(name.map(|job| {
                    let problem = format!("job {job} was left without a launcher");
                    Problem::new(Subject::Abandoned, problem).with(format!("process {pids}"))
                }));
            }
        }
    }
    problems
}

/// Only those of this user; root could read the environments of all users.
fn processes() -> Vec<MarkedProcess> {
    let stats = procfs::stats();
    let marked = |pid: i32| {
        let environment = procfs::environment(pid)?;
        let token = token(&environment.text(TOKEN)?)?;
        procfs::is_own(pid).then(|| MarkedProcess {
            pid,
            token,
            name: environment.text(JOB),
            below_agent: is_below_agent(&stats, pid),
        })
    };
    procfs::pids().into_iter().filter_map(marked).collect()
}

/// Supervisors and watchers have a word and a dash before it.
fn token(value: &str) -> Option<String> {
    let token = value.rsplit('-').next().unwrap_or(value);
    is_token(token).then(|| token.to_owned())
}

fn is_below_agent(stats: &BTreeMap<i32, Stat>, pid: i32) -> bool {
    let mut above = line_of(stats, pid).skip(1).take_while(|pid| *pid > 1);
    above.any(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("host-agent"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn jobs_are_alive_or_abandoned() {
        let own_job = crate::tested_job("mine");
        let process =
            |pid: i32, token: &str, name: Option<&str>, below_agent: bool| MarkedProcess {
                pid,
                token: token.repeat(32),
                name: name.map(str::to_owned),
                below_agent,
            };
        let left = |job: &str, pids: &str| {
            let problem = format!("job {job} was left without a launcher");
            Problem::new(Subject::Abandoned, problem).with(format!("process {pids}"))
        };
        let table = [
            ("nothing", vec![], vec![]),
            (
                "this job",
                vec![process(9, "0", Some("mine"), false)],
                vec![],
            ),
            (
                "another, with a watcher",
                vec![
                    process(9, "1", Some("a"), false),
                    process(8, "1", None, false),
                ],
                vec![],
            ),
            (
                "another, below an agent",
                vec![
                    process(9, "1", Some("a"), true),
                    process(10, "1", Some("a"), false),
                ],
                vec![],
            ),
            (
                "another, claimed",
                vec![process(9, "2", Some("a"), false)],
                vec![],
            ),
            (
                "one of this name",
                vec![process(9, "1", Some("mine"), true)],
                vec![claim::name_in_use("mine", None)],
            ),
            (
                "a dead one",
                vec![
                    process(9, "1", Some("a"), false),
                    process(10, "1", Some("a"), false),
                ],
                vec![left("a", "9 10")],
            ),
            (
                "a supervisor that is left",
                vec![process(9, "1", None, false)],
                vec![],
            ),
        ];
        for (case, processes, expected) in table {
            let found = judge(&processes, &own_job, |_, token| token.starts_with('2'));
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn tokens_of_a_watch_are_the_jobs() {
        let hex = "0123456789abcdef0123456789abcdef";
        assert_eq!(token(hex).as_deref(), Some(hex));
        assert_eq!(token(&format!("guard-{hex}")).as_deref(), Some(hex));
        assert_eq!(token("0123"), None);
    }
}
