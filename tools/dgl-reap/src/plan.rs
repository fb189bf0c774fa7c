//! The requests to a host, and the meaning of its answers.

use record::{Found, Host, Reaped, Role};
use std::time::Duration;
use wire::reap::{End, Forget, Pick, Signal};
use wire::{Event, Request};

/// How many characters of a command are shown.
const COMMAND_CHARS: usize = 200;
/// How many characters of a job's name are shown; it comes from an environment and could be very
/// long.
const NAME_CHARS: usize = 255;
/// A process that listens on more ports than this is not a graph server.
const PORTS_SHOWN: usize = 64;

/// What to do.
pub enum What<'a> {
    /// Show all jobs.
    List,
    /// End one job.
    Job(&'a str),
    /// End all jobs.
    All,
    /// Send a signal to processes of a job.
    Signal {
        /// The job's name.
        job: &'a str,
        /// Only processes of this role.
        role: Option<Role>,
        /// Only the process of this rank.
        rank: Option<u32>,
        /// The number of the signal.
        signal: i32,
    },
    /// Remove shared memory that nobody uses.
    StaleShm,
    /// Remove the folders of jobs that were left and have ended.
    Forget,
}

impl What<'_> {
    /// The requests to a host, in their order. Each is sent to all hosts before the next is sent to
    /// any. The processes are picked first, so that a signal or the end reaches all hosts at once:
    /// before dgl-spawn ends the job on the others because of what ended on one.
    pub fn requests(&self, host: &Host, grace: Duration) -> Vec<Request> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        match self {
            What::List => vec![Request::ListJobs],
            What::Job(_) | What::All => {
                let job = match self {
                    What::Job(job) => Some((*job).to_owned()),
                    _ => None,
                };
                let pick = Pick {
                    job: job.clone(),
                    ..Pick::default()
                };
                vec![
                    Request::PickProcesses(pick),
                    Request::EndJobs(End { job, grace_ms }),
                ]
            }
            What::Signal {
                job,
                role,
                rank,
                signal,
            } => {
                let pick = Pick {
                    job: Some((*job).to_owned()),
                    role: *role,
                    rank: *rank,
                };
                vec![
                    Request::PickProcesses(pick),
                    Request::SignalPicked(Signal { signal: *signal }),
                ]
            }
            What::StaleShm => vec![Request::RemoveStaleShm],
            What::Forget => vec![Request::ForgetJobs(Forget { address: host.ip.0 })],
        }
    }
}

/// The meaning of an event.
#[derive(Debug)]
pub enum Answer {
    /// A process of a job.
    Found(Found),
    /// A job was ended or signalled, or what it left was removed.
    Reaped(Reaped),
    /// Nothing that anybody has to know.
    Nothing,
}

/// Reads an event; `None` if it does not belong to the requests.
pub fn answer(host: u32, what: &What<'_>, event: Event) -> Option<Answer> {
    let reaped = Reaped {
        host,
        ok: true,
        ..Reaped::default()
    };
    match (what, event) {
        (What::List, Event::Found(found)) => Some(Answer::Found(found_record(host, found))),
        (What::Job(_) | What::All, Event::Reaped(told)) => {
            let left: Vec<String> = told.left.iter().map(u32::to_string).collect();
            let error = (!left.is_empty())
                .then(|| format!("could not be ended: process {}", left.join(", ")));
            let (job, processes, shm_files) =
                (cut(&told.job, NAME_CHARS), told.processes, told.shm_files);
            Some(Answer::Reaped(Reaped {
                job,
                ok: error.is_none(),
                processes,
                shm_files,
                error,
                ..reaped
            }))
        }
        (What::Signal { .. } | What::Job(_) | What::All, Event::Picked(_)) => Some(Answer::Nothing),
        (What::Signal { .. }, Event::Signalled(told)) if told.processes == 0 => {
            Some(Answer::Nothing)
        }
        (What::Signal { job, signal, .. }, Event::Signalled(told)) => {
            let signal = Some(record::exit::signal_name(*signal));
            Some(Answer::Reaped(Reaped {
                job: (*job).to_owned(),
                processes: told.processes,
                signal,
                ..reaped
            }))
        }
        (What::StaleShm, Event::RemovedShm(told)) => Some(Answer::Reaped(Reaped {
            shm_files: told.files,
            ..reaped
        })),
        (What::Forget, Event::Forgotten(told)) => {
            let error = told.error.map(|error| {
                format!(
                    "its folder could not be removed: {}",
                    cut(&error, COMMAND_CHARS)
                )
            });
            let folders = u32::from(error.is_none());
            Some(Answer::Reaped(Reaped {
                job: cut(&told.job, NAME_CHARS),
                ok: error.is_none(),
                folders,
                error,
                ..reaped
            }))
        }
        _ => None,
    }
}

fn found_record(host: u32, found: wire::reap::Found) -> Found {
    Found {
        host,
        job: cut(&found.job, NAME_CHARS),
        pid: found.pid,
        role: found.role,
        rank: found.rank,
        age_s: found.age_s,
        cpu_s: found.cpu_ms as f64 / 1000.0,
        silent_s: found.silent_ms.map(|time| time as f64 / 1000.0),
        rss_bytes: found.rss_bytes,
        shm_bytes: found.shm_bytes,
        ports: found.ports.into_iter().take(PORTS_SHOWN).collect(),
        groups: found.groups,
        command: cut(&found.command, COMMAND_CHARS),
    }
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// Merges the records into one for each job, because a name may have been used twice.
pub fn merged(all: Vec<Reaped>) -> Vec<Reaped> {
    let mut merged: Vec<Reaped> = Vec::new();
    for one in all {
        match merged
            .iter_mut()
            .find(|other| other.host == one.host && other.job == one.job)
        {
            Some(other) => {
                other.ok &= one.ok;
                other.processes = other.processes.saturating_add(one.processes);
                other.shm_files = other.shm_files.saturating_add(one.shm_files);
                other.folders = other.folders.saturating_add(one.folders);
                other.error = other.error.take().or(one.error);
            }
            None => merged.push(one),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: What<'_> = What::Signal {
        job: "a",
        role: None,
        rank: None,
        signal: 6,
    };

    #[test]
    fn a_process_as_a_record() {
        let found = wire::reap::Found {
            job: "a".repeat(999),
            command: "x ".repeat(300),
            cpu_ms: 2500,
            silent_ms: Some(61_500),
            ..Default::default()
        };
        let Some(Answer::Found(one)) = answer(2, &What::List, Event::Found(found)) else {
            panic!("no record")
        };
        assert_eq!(
            (one.host, one.cpu_s, one.job.len(), one.command.len()),
            (2, 2.5, 255, 200)
        );
        assert_eq!(one.silent_s, Some(61.5));
    }

    #[test]
    fn what_was_done_as_a_record() {
        let reaped = |what: &What<'_>, event: Event| match answer(0, what, event) {
            Some(Answer::Reaped(one)) => (
                one.ok,
                one.processes,
                one.shm_files,
                one.folders,
                one.signal,
                one.error,
            ),
            other => panic!("{other:?}"),
        };
        let ended = |left: &[u32]| {
            Event::Reaped(wire::reap::Reaped {
                job: "a".to_owned(),
                processes: 2,
                shm_files: 1,
                left: left.to_vec(),
            })
        };
        assert_eq!(
            reaped(&What::Job("a"), ended(&[])),
            (true, 2, 1, 0, None, None)
        );
        let left = Some("could not be ended: process 4, 5".to_owned());
        assert_eq!(
            reaped(&What::All, ended(&[4, 5])),
            (false, 2, 1, 0, None, left)
        );
        let signalled = Event::Signalled(wire::reap::Count { processes: 3 });
        assert_eq!(
            reaped(&SIGNAL, signalled),
            (true, 3, 0, 0, Some("ABRT".to_owned()), None)
        );
        let removed = Event::RemovedShm(wire::reap::RemovedShm { files: 16 });
        assert_eq!(
            reaped(&What::StaleShm, removed),
            (true, 0, 16, 0, None, None)
        );
        let forgotten = |error: Option<&str>| {
            Event::Forgotten(wire::reap::Forgotten {
                job: "a".to_owned(),
                error: error.map(str::to_owned),
            })
        };
        assert_eq!(
            reaped(&What::Forget, forgotten(None)),
            (true, 0, 0, 1, None, None)
        );
        let error = Some("its folder could not be removed: busy".to_owned());
        assert_eq!(
            reaped(&What::Forget, forgotten(Some("busy"))),
            (false, 0, 0, 0, None, error)
        );
    }

    #[test]
    fn an_event_that_was_not_asked_for_is_no_answer() {
        let removed = || Event::RemovedShm(wire::reap::RemovedShm::default());
        for what in [What::List, What::Job("a"), What::All, SIGNAL, What::Forget] {
            assert!(answer(0, &what, removed()).is_none());
        }
        assert!(answer(0, &What::List, Event::Reaped(wire::reap::Reaped::default())).is_none());
    }

    #[test]
    fn a_signal_and_the_end_wait_until_all_hosts_have_picked() {
        let host = Host {
            ip: record::IpAddr([10, 0, 0, 1].into()),
            ..Host::default()
        };
        let picked = |what: &What<'_>| match &what.requests(&host, Duration::ZERO)[..] {
            [Request::PickProcesses(pick), second] => (pick.job.clone(), second.clone()),
            requests => panic!("{requests:?}"),
        };
        let job = Some("a".to_owned());
        let end = |job| Request::EndJobs(End { job, grace_ms: 0 });
        let signal = Request::SignalPicked(Signal { signal: 6 });
        assert_eq!(picked(&SIGNAL), (job.clone(), signal));
        assert_eq!(picked(&What::Job("a")), (job.clone(), end(job)));
        assert_eq!(picked(&What::All), (None, end(None)));
    }
}
