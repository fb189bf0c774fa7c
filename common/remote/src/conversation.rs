//! Sends a few requests to the agents of all hosts at once and collects all answers, for tools that
//! only ask.

pub use session::ANSWER_LIMIT;

use crate::{Session, threads};
use rayon::prelude::*;
use record::Host;
use record::error::{Fault, Report};
use std::time::Duration;
use wire::{Event, Request};

/// How many hosts are listened to at once. Each waits; none computes.
pub(crate) const AT_ONCE: usize = 256;
/// No host has more processes of jobs than this. Each takes up to 2 KB here, so a host that reports
/// more would fill this machine's memory.
const MOST_ANSWERS: usize = 10_000;

/// Reads an event of the host with this id as an answer; `None` if it was not requested.
pub type ReadAnswer<'r, A> = &'r (dyn Fn(u32, Event) -> Option<A> + Sync);

/// A host and all of its answers.
pub struct HostAnswers<'a, A> {
    /// The host that was asked.
    pub host: &'a Host,
    /// The answers, in the order in which they arrived.
    pub answers: Vec<A>,
    /// Why nothing more arrives from the host.
    pub fault: Option<Fault>,
    /// The session, for tools that do not only ask.
    pub session: Session,
}

impl<'a, A: Send> HostAnswers<'a, A> {
    /// A host without a request so far.
    pub fn new((host, session): (&'a Host, Session)) -> HostAnswers<'a, A> {
        HostAnswers {
            host,
            answers: Vec::new(),
            fault: None,
            session,
        }
    }

    /// Listens until the request is answered, at most for `limit`.
    fn listen(&mut self, read: ReadAnswer<'_, A>, limit: Duration) {
        let answers = &mut self.answers;
        let answered = self.session.take_answer(limit, |event| {
            let answer = read(self.host.id, event)
                .ok_or("protocol error: it sent what was not asked for")?;
            if answers.len() >= MOST_ANSWERS {
                return Err(format!("it tells of more than {MOST_ANSWERS} processes"));
            }
            answers.push(answer);
            Ok(())
        });
        self.fault = answered.err().map(|fault| fault.fault(self.host));
    }
}

/// Asks all hosts the same requests, one after the other; `limit` is the time that a host has to
/// answer one.
pub fn ask<A: Send>(
    hosts: &mut [HostAnswers<'_, A>],
    requests: impl Fn(&Host) -> Vec<Request>,
    read: ReadAnswer<'_, A>,
    limit: impl Fn(&Request) -> Duration + Sync,
) -> Result<(), Report> {
    let requests: Vec<Vec<Request>> = hosts.iter().map(|one| requests(one.host)).collect();
    let rounds = requests.iter().map(Vec::len).max().unwrap_or(0);
    let pool = threads(hosts.len().min(AT_ONCE))?;
    for round in 0..rounds {
        for (one, requests) in hosts.iter_mut().zip(&requests) {
            if let (None, Some(request)) = (&one.fault, requests.get(round)) {
                // bytes that the connection does not accept at once are sent while waiting for the
                // answer
                one.session.send(request);
                one.session.flush();
            }
        }
        let listen = |(one, requests): (&mut HostAnswers<'_, A>, &Vec<Request>)| {
            if let (None, Some(request)) = (&one.fault, requests.get(round)) {
                one.listen(read, limit(request));
            }
        };
        pool.install(|| hosts.par_iter_mut().zip(&requests).for_each(listen));
    }
    Ok(())
}
