//! Requests to all hosts' agents, and the answers, before the job starts.

use super::diagnosis::lost;
use crate::run::events::RunEvent;
use crate::run::executor::ConnectedHosts;
use crate::run::outcome::Stopped;
use record::error::{Fault, Report};
use session::{ANSWER_LIMIT, RunningClock, SessionEvent};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Event, Request};

/// What to do if a host cannot carry out a request.
const SEE_HOST: &str = "log in to the host: it may be overloaded, or out of memory or descriptors";
/// More than a host can find while one set of requests is answered. Findings are compared with one
/// another, so a hostile host could keep the launcher busy.
const MOST_FINDINGS: usize = 1000;

/// Counts the requests that the hosts have not answered.
pub struct Conversation<'a, 'h> {
    pub hosts: &'a ConnectedHosts<'h>,
    /// For each host; `None` if it is lost.
    unanswered: Vec<Option<usize>>,
    clock: RunningClock,
}

impl<'a, 'h> Conversation<'a, 'h> {
    /// Begins with hosts that got the job and have not answered.
    pub fn new(hosts: &'a ConnectedHosts<'h>) -> Conversation<'a, 'h> {
        let sessions = hosts.sessions.iter();
        let unanswered = sessions
            .map(|session| Some(1 + session.members.len()))
            .collect();
        Conversation {
            hosts,
            unanswered,
            clock: RunningClock::begin(),
        }
    }

    /// The time since the beginning, in which the launcher ran.
    pub fn now(&mut self) -> Duration {
        self.clock.now()
    }

    pub fn host_indices(&self) -> std::ops::Range<usize> {
        0..self.hosts.sessions.len()
    }

    pub fn ask(&mut self, index: usize, request: Request) {
        if let Some(count) = &mut self.unanswered[index] {
            *count += 1;
            self.hosts.sessions[index].send(request);
        }
    }

    pub fn ask_all(&mut self, request: &Request) {
        self.host_indices()
            .for_each(|index| self.ask(index, request.clone()));
    }

    /// Receives until all hosts have answered; returns the hosts that have not. Each answer may
    /// take [`ANSWER_LIMIT`], because one may start Pythons from a slow disk. `received`
    /// gets all events except [`Event::Done`].
    pub fn listen(
        &mut self,
        mut received: impl FnMut(usize, SessionEvent),
    ) -> Result<Vec<usize>, Stopped> {
        let mut until = vec![self.now() + ANSWER_LIMIT; self.unanswered.len()];
        let mut findings = vec![0; self.unanswered.len()];
        let is_late = |count: &Option<usize>| count.is_some_and(|count| count > 0);
        loop {
            let hosts = self.unanswered.iter().zip(&until);
            let late = hosts.filter(|(count, _)| is_late(count));
            let Some(last) = late.map(|(_, until)| *until).max() else {
                break;
            };
            let left = self.clock.turn(last);
            match self.hosts.next_event(left) {
                Some(RunEvent::Signal(number)) => return Err(Stopped::Signal(number)),
                Some(RunEvent::StatusAsked | RunEvent::Paused(_)) => {}
                // the rest of what a lost host has sent
                Some(RunEvent::Host(index, _)) if self.unanswered[index].is_none() => {}
                Some(RunEvent::Host(index, mut event)) => {
                    let count = &mut self.unanswered[index];
                    // one for each process of the job
                    let is_done = matches!(event, SessionEvent::Event(Event::Done, _));
                    findings[index] += usize::from(!is_done);
                    if findings[index] > MOST_FINDINGS {
                        let why = format!("it reports more than {MOST_FINDINGS} findings");
                        event = SessionEvent::Lost(why);
                    }
                    match &event {
                        SessionEvent::Event(Event::Done | Event::Failed(_), _) => {
                            *count = count.map(|count| count.saturating_sub(1));
                            until[index] = self.clock.now() + ANSWER_LIMIT;
                        }
                        SessionEvent::Event(..) => {}
                        SessionEvent::Lost(_) => *count = None,
                    }
                    if !is_done {
                        received(index, event);
                    }
                }
                None if left.is_zero() => break,
                None => {}
            }
        }
        let late = self
            .host_indices()
            .filter(|index| is_late(&self.unanswered[*index]));
        Ok(late.collect())
    }

    /// Collects the answers' events. A failed request or a lost host is a fault.
    pub fn collect(&mut self, mut take: impl FnMut(usize, Event, Vec<u8>)) -> Result<(), Stopped> {
        let mut faults: BTreeMap<usize, Fault> = BTreeMap::new();
        let hosts = self.hosts;
        let host = |index: usize| hosts.sessions[index].host;
        let late = self.listen(|host_index, event| match event {
            SessionEvent::Event(Event::Failed(failure), _) => {
                let fault = Fault::unreachable(host(host_index).location(), failure.problem);
                faults.entry(host_index).or_insert(fault.fix(SEE_HOST));
            }
            SessionEvent::Event(event, body) => take(host_index, event, body),
            SessionEvent::Lost(why) => {
                let fault = lost(host(host_index), why);
                faults.entry(host_index).or_insert(fault);
            }
        })?;
        for host_index in late {
            let problem = format!("no answer within {} s", ANSWER_LIMIT.as_secs());
            let fault = lost(host(host_index), problem);
            faults.entry(host_index).or_insert(fault);
        }
        let report = Report(faults.into_values().collect());
        report.check().map_err(Stopped::Hosts)
    }

    /// Waits this long; a signal is a fault.
    pub fn pause(&mut self, time: Duration) -> Result<(), Stopped> {
        let until = self.now() + time;
        loop {
            let left = self.clock.turn(until);
            match self.hosts.next_event(left) {
                Some(RunEvent::Signal(number)) => return Err(Stopped::Signal(number)),
                Some(RunEvent::Host(index, SessionEvent::Lost(why))) => {
                    self.unanswered[index] = None;
                    let fault = lost(self.hosts.sessions[index].host, why);
                    return Err(Stopped::Preflight(fault.report()));
                }
                Some(_) => {}
                None if left.is_zero() => return Ok(()),
                None => {}
            }
        }
    }
}
