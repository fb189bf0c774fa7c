//! Asks the agents of all hosts at the same time.

pub use session::ANSWER_LIMIT;

use crate::{HostFault, Session, threads};
use rayon::prelude::*;
use record::Host;
use record::error::{Fault, Report};
use std::time::Duration;
use wire::{Event, Request};

/// These threads only wait, so they may outnumber the cores.
pub(crate) const AT_ONCE: usize = 256;
/// More than a host can have processes. An answer takes up to 2 KB, so a hostile host could fill
/// this machine's memory.
const MOST_ANSWERS: usize = 10_000;

/// Reads an event of the host with this id; `None` if it is no answer.
pub type ReadAnswer<'r, A> = &'r (dyn Fn(u32, Event) -> Option<A> + Sync);

pub struct HostAnswers<'a, A> {
    pub host: &'a Host,
    pub answers: Vec<A>,
    /// After a fault no answers follow.
    pub fault: Option<Fault>,
    pub session: Session,
}

impl<'a, A: Send> HostAnswers<'a, A> {
    pub fn new((host, session): (&'a Host, Session)) -> HostAnswers<'a, A> {
        HostAnswers {
            host,
            answers: Vec::new(),
            fault: None,
            session,
        }
    }

    fn collect(&mut self, read: ReadAnswer<'_, A>, limit: Duration) {
        let answers = &mut self.answers;
        let answered = self.session.read_answer(limit, |event| {
            let breach = |problem: &str| HostFault {
                is_unreachable: true,
                ..HostFault::protocol(problem)
            };
            let answer = read(self.host.id, event).ok_or_else(|| breach("unexpected answer"))?;
            if answers.len() >= MOST_ANSWERS {
                return Err(breach(&format!(
                    "it reports more than {MOST_ANSWERS} processes"
                )));
            }
            answers.push(answer);
            Ok(())
        });
        self.fault = answered.err().map(|fault| fault.fault(self.host));
    }
}

/// Each host gets its requests one after another; `limit` is the time for one answer.
pub fn ask<A: Send>(
    hosts: &mut [HostAnswers<'_, A>],
    requests: impl Fn(&Host) -> Vec<Request>,
    read: ReadAnswer<'_, A>,
    limit: impl Fn(&Request) -> Duration + Sync,
) -> Result<(), Report> {
    let requests: Vec<Vec<Request>> = hosts.iter().map(|asked| requests(asked.host)).collect();
    let rounds = requests.iter().map(Vec::len).max().unwrap_or(0);
    let pool = threads(hosts.len().min(AT_ONCE))?;
    for round in 0..rounds {
        for (asked, requests) in hosts.iter_mut().zip(&requests) {
            if let (None, Some(request)) = (&asked.fault, requests.get(round)) {
                // the rest is sent while waiting for the answer
                asked.session.send(request);
                asked.session.flush();
            }
        }
        let collect = |(asked, requests): (&mut HostAnswers<'_, A>, &Vec<Request>)| {
            if let (None, Some(request)) = (&asked.fault, requests.get(round)) {
                asked.collect(read, limit(request));
            }
        };
        pool.install(|| hosts.par_iter_mut().zip(&requests).for_each(collect));
    }
    Ok(())
}
