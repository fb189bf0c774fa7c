//! The requests to a host, and the meaning of its answers.

use record::exit::SignalNumber;
use record::{Found, Reaped, Role, term};
use std::time::Duration;
use wire::reap::{EndJobs, Pick, Signal};
use wire::{Event, Request};

pub enum What<'a> {
    List,
    /// The job of this name, or all.
    End(Option<&'a str>),
    /// To processes of a job.
    Signal {
        job: &'a str,
        role: Option<Role>,
        rank: Option<u32>,
        signal: SignalNumber,
    },
    /// Remove unused shared memory.
    StaleShm,
}

impl What<'_> {
    /// The requests to a host, in their order. Each goes to all hosts before the next one goes to
    /// any. Processes are picked first, so that a signal or the end reaches all hosts at once,
    /// before dgl-spawn ends the job on the others because of what ended on one.
    pub fn requests(&self, grace: Duration) -> Vec<Request> {
        let grace_ms = term::millis(grace);
        match self {
            What::List => vec![Request::ListJobs],
            What::End(job) => {
                let job = job.map(str::to_owned);
                let pick = Pick {
                    job: job.clone(),
                    ..Pick::default()
                };
                vec![
                    Request::PickProcesses(pick),
                    Request::EndJobs(EndJobs { job, grace_ms }),
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
        }
    }
}

#[derive(Debug)]
pub enum ReapAnswer {
    Found(Found),
    /// A job was ended or signalled, or its remains were removed.
    Reaped(Reaped),
}

/// `None` if the event does not belong to the requests.
pub fn answer(host: u32, what: &What<'_>, event: Event) -> Option<ReapAnswer> {
    match (what, event) {
        (What::List, Event::Found(found)) => Some(ReapAnswer::Found(Found { host, ..found })),
        (What::List, _) => None,
        (_, Event::Reaped(reaped)) => Some(ReapAnswer::Reaped(Reaped { host, ..reaped })),
        _ => None,
    }
}

/// Merges the records of each job, because a name may have been used twice.
pub fn merged(all: Vec<Reaped>) -> Vec<Reaped> {
    let mut merged: Vec<Reaped> = Vec::new();
    for result in all {
        match merged
            .iter_mut()
            .find(|other| other.host == result.host && other.job == result.job)
        {
            Some(other) => {
                other.ok &= result.ok;
                other.processes = other.processes.saturating_add(result.processes);
                other.shm_files = other.shm_files.saturating_add(result.shm_files);
                other.error = other.error.take().or(result.error);
            }
            None => merged.push(result),
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
        signal: SignalNumber::ABRT,
    };

    #[test]
    fn an_event_that_was_not_asked_for_is_no_answer() {
        for what in [
            What::End(Some("a")),
            What::End(None),
            SIGNAL,
            What::StaleShm,
        ] {
            assert!(answer(0, &what, Event::Found(Found::default())).is_none());
        }
        assert!(answer(0, &What::List, Event::Reaped(Reaped::default())).is_none());
    }

    #[test]
    fn a_signal_and_the_end_wait_until_all_hosts_have_picked() {
        let picked = |what: &What<'_>| match &what.requests(Duration::ZERO)[..] {
            [Request::PickProcesses(pick), second] => (pick.job.clone(), second.clone()),
            requests => panic!("{requests:?}"),
        };
        let job = Some("a".to_owned());
        let end = |job| Request::EndJobs(EndJobs { job, grace_ms: 0 });
        let signal = Request::SignalPicked(Signal {
            signal: SignalNumber::ABRT,
        });
        assert_eq!(picked(&SIGNAL), (job.clone(), signal));
        assert_eq!(picked(&What::End(Some("a"))), (job.clone(), end(job)));
        assert_eq!(picked(&What::End(None)), (None, end(None)));
    }
}
