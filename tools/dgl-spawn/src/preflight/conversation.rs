//! Requests to the agents of all hosts, and their answers, before the job starts.

use crate::run::hosts::{ConnectedHosts, RunEvent};
use crate::run::outcome::Stopped;
use remote::SessionEvent;
use std::time::{Duration, Instant};
use wire::{Event, Failure, Request};

/// What comes from a host.
pub enum PreflightEvent {
    /// An event that answers a request.
    Event(Event, Vec<u8>),
    /// A request could not be carried out.
    Failed(Failure),
    /// The host is lost; why.
    Lost(String),
}

/// Counts the requests that the hosts have not answered yet.
pub struct Conversation<'a, 'h> {
    /// The hosts that are asked.
    pub hosts: &'a ConnectedHosts<'h>,
    unanswered: Vec<usize>,
    lost: Vec<bool>,
}

impl<'a, 'h> Conversation<'a, 'h> {
    /// With hosts that were told the job and have not answered that yet.
    pub fn with(hosts: &'a ConnectedHosts<'h>) -> Conversation<'a, 'h> {
        let unanswered = hosts
            .sessions
            .iter()
            .map(|session| 1 + session.members.len())
            .collect();
        Conversation {
            hosts,
            unanswered,
            lost: vec![false; hosts.sessions.len()],
        }
    }

    /// The positions of all hosts.
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.hosts.sessions.len()
    }

    /// Sends a request to one host.
    pub fn ask(&mut self, at: usize, request: Request) {
        if !self.lost[at] {
            self.unanswered[at] += 1;
            self.hosts.sessions[at].send(request);
        }
    }

    /// Sends the same request to all hosts.
    pub fn ask_all(&mut self, request: &Request) {
        self.all().for_each(|at| self.ask(at, request.clone()));
    }

    /// Listens until all hosts have answered or the time is over; returns those that have not
    /// answered.
    pub fn listen(
        &mut self,
        limit: Duration,
        mut said: impl FnMut(usize, PreflightEvent),
    ) -> Result<Vec<usize>, Stopped> {
        let until = Instant::now() + limit;
        while self.unanswered.iter().any(|count| *count > 0) {
            let left = until.saturating_duration_since(Instant::now());
            match self.hosts.next_event(left) {
                Some(RunEvent::Signal(number)) => return Err(Stopped::Signal(number)),
                Some(RunEvent::StatusAsked | RunEvent::Paused(_)) => {}
                Some(RunEvent::Host(at, heard)) => self.handle(at, heard, &mut said),
                None if left.is_zero() => break,
                None => {}
            }
        }
        Ok(self.all().filter(|at| self.unanswered[*at] > 0).collect())
    }

    /// Lets time pass; a signal ends it.
    pub fn pause(&mut self, time: Duration) -> Result<(), Stopped> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.hosts.next_event(left) {
                Some(RunEvent::Signal(number)) => return Err(Stopped::Signal(number)),
                Some(RunEvent::Host(at, SessionEvent::Lost(why))) => {
                    self.lost[at] = true;
                    self.unanswered[at] = 0;
                    return Err(Stopped::Preflight(
                        super::faults::lost(self.hosts.sessions[at].host, why).report(),
                    ));
                }
                Some(_) => {}
                None if left.is_zero() => return Ok(()),
                None => {}
            }
        }
    }

    fn handle(
        &mut self,
        at: usize,
        heard: SessionEvent,
        said: &mut impl FnMut(usize, PreflightEvent),
    ) {
        match heard {
            SessionEvent::Event(Event::Done, _) => {
                self.unanswered[at] = self.unanswered[at].saturating_sub(1);
            }
            SessionEvent::Event(Event::Failed(failure), _) => {
                self.unanswered[at] = self.unanswered[at].saturating_sub(1);
                said(at, PreflightEvent::Failed(failure));
            }
            SessionEvent::Event(event, body) => said(at, PreflightEvent::Event(event, body)),
            SessionEvent::Lost(why) => {
                self.unanswered[at] = 0;
                self.lost[at] = true;
                said(at, PreflightEvent::Lost(why));
            }
        }
    }
}
