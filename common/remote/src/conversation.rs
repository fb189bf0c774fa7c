//! Sends a few requests to the agents of all hosts at once and collects all answers, for tools that
//! only ask.

use crate::{Session, SessionEvent, threads};
use rayon::prelude::*;
use record::Host;
use record::error::{Fault, Report};
use std::time::{Duration, Instant};
use wire::{Event, Request};

/// How many hosts are listened to at once. Each waits; none computes.
const AT_ONCE: usize = 256;
/// No host has more processes of jobs than this. Each takes up to 2 KB here, so a host that reports
/// more would fill this machine's memory.
const MOST_ANSWERS: usize = 10_000;

/// Many times what the processes of a host tell with all of their threads. Answers take up to five
/// times as much memory as they have bytes.
const MOST_BYTES: u64 = 16 << 20;

/// Reads an event of the host with this id as an answer; `None` if nobody asked for such an event.
pub type Read<'r, A> = &'r (dyn Fn(u32, Event) -> Option<A> + Sync);

/// A host and all of its answers.
pub struct HostAnswers<'a, A> {
    /// The host that was asked.
    pub host: &'a Host,
    /// The answers, in the order in which they came.
    pub answers: Vec<A>,
    /// Why nothing more comes from the host.
    pub fault: Option<Fault>,
    is_answered: bool,
    /// The session, for tools that do not only ask.
    pub session: Session,
}

impl<'a, A: Send> HostAnswers<'a, A> {
    /// A host that has not been asked anything yet.
    pub fn new((host, session): (&'a Host, Session)) -> HostAnswers<'a, A> {
        HostAnswers {
            host,
            answers: Vec::new(),
            fault: None,
            is_answered: true,
            session,
        }
    }

    /// Sends what the connection takes at once; the rest is sent while waiting for the answer.
    fn send(&mut self, request: &Request, read: Read<'_, A>) {
        self.is_answered = false;
        self.session.send(request);
        self.step(read, Duration::ZERO);
    }

    /// Listens until the request is answered, at most for `limit`.
    fn listen(&mut self, read: Read<'_, A>, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.is_answered && self.fault.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.lose(format!("no end of its answer within {} s", limit.as_secs()));
            }
            self.step(read, left);
        }
    }

    fn step(&mut self, read: Read<'_, A>, limit: Duration) {
        for event in self.session.step(None, limit) {
            match event {
                SessionEvent::Lost(why) => self.lose(why),
                SessionEvent::Event(..) if self.is_answered => {
                    self.lose("it goes on behind the end of its answer".to_owned());
                }
                SessionEvent::Event(Event::Done, _) => self.is_answered = true,
                SessionEvent::Event(Event::Failed(failure), _) => {
                    self.fault
                        .get_or_insert(Fault::item(self.host.location(), failure.problem));
                }
                SessionEvent::Event(event, _) => self.take(read, event),
            }
        }
    }

    fn take(&mut self, read: Read<'_, A>, event: Event) {
        match read(self.host.id, event) {
            Some(_) if self.answers.len() >= MOST_ANSWERS => {
                self.lose(format!("it tells of more than {MOST_ANSWERS} processes"));
            }
            Some(_) if self.session.received() > MOST_BYTES => {
                self.lose(format!("it tells more than {} MB", MOST_BYTES >> 20));
            }
            Some(answer) => self.answers.push(answer),
            None => self.lose("it told what was not asked".to_owned()),
        }
    }

    fn lose(&mut self, why: String) {
        let fix = "run this again when the host is up; dgl-reap --list shows what is there";
        // the first reason counts
        self.fault
            .get_or_insert_with(|| Fault::unreachable(self.host.location(), why).fix(fix));
    }
}

/// Asks all hosts the same requests, one after the other, and ends their agents; `limit` is the
/// time that a host has to answer one.
pub fn ask<A: Send>(
    hosts: &mut [HostAnswers<'_, A>],
    requests: impl Fn(&Host) -> Vec<Request>,
    read: Read<'_, A>,
    limit: impl Fn(&Request) -> Duration + Sync,
) -> Result<(), Report> {
    ask_first(hosts, requests, read, limit)?;
    hosts.iter_mut().for_each(|one| one.session.close_stdin());
    Ok(())
}

/// The same, where their agents are asked for more later.
pub fn ask_first<A: Send>(
    hosts: &mut [HostAnswers<'_, A>],
    requests: impl Fn(&Host) -> Vec<Request>,
    read: Read<'_, A>,
    limit: impl Fn(&Request) -> Duration + Sync,
) -> Result<(), Report> {
    let requests: Vec<Vec<Request>> = hosts.iter().map(|one| requests(one.host)).collect();
    let rounds = requests.iter().map(Vec::len).max().unwrap_or(0);
    let pool = threads(hosts.len().min(AT_ONCE))?;
    for round in 0..rounds {
        for (one, requests) in hosts.iter_mut().zip(&requests) {
            if let (None, Some(request)) = (&one.fault, requests.get(round)) {
                one.send(request, read);
            }
        }
        let listen = |(one, requests): (&mut HostAnswers<'_, A>, &Vec<Request>)| {
            if let Some(request) = requests.get(round) {
                one.listen(read, limit(request));
            }
        };
        pool.install(|| hosts.par_iter_mut().zip(&requests).for_each(listen));
    }
    Ok(())
}
