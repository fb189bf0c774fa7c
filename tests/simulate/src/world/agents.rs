//! The agents of hosts, idle and with the processes of an attempt, and the watchers that end what
//! they leave.

use super::{Actor, Agent, Truth, WATCHER_PACE, World, trace};
use crate::connection::Shared;
use crate::host::{By, SimHost};
use crate::time::MS;
use job::{Supervision, TerminationStep};
use record::exit::ProcessEnd;
use std::io::ErrorKind;
use std::time::Instant;
use wire::Request;

impl World {
    pub(super) fn run_agent(&mut self, position: usize) {
        self.flush_closing();
        let is_later = self.schedule.is_later;
        let ready = [(); 3].map(|()| !is_later || self.random.percent(80));
        let host = &mut self.hosts[position];
        let now = host.clock.read(self.now);
        host.connection.lock().now = self.now;
        host.state.borrow_mut().now = self.now;
        let was_ending = matches!(&host.agent, Agent::Supervised(one) if one.is_ending());
        match &mut host.agent {
            Agent::None => return,
            Agent::Idle(..) => self.idle_agent(position, now),
            Agent::Supervised(supervision) => {
                if !run_supervision(supervision, &host.connection, ready, now) {
                    trace!(self, "host {position}: the agent ends");
                    self.end_agent(position);
                } else {
                    let due = supervision.due();
                    let at = host.clock.when(due, self.now).max(self.now + 1);
                    if supervision.is_ending() && !was_ending {
                        host.ends_from = host.ends_from.min(self.now);
                        trace!(self, "host {position}: the agent ends its processes");
                    }
                    let has_output = !self.hosts[position].state.borrow().readable().is_empty();
                    let at = match (ready.contains(&false), has_output) {
                        (true, _) => self.now + 1,
                        (_, true) => at.min(self.now + 10 * MS),
                        _ => at,
                    };
                    self.wake(Actor::Agent(position), at);
                }
            }
            Agent::Guarded(_) => self.guard(position, now),
        }
        self.take_coming(position);
        self.look_at_connection(position);
    }

    pub(super) fn idle_agent(&mut self, position: usize, now: Instant) {
        let host = &mut self.hosts[position];
        let Agent::Idle(decoder, job, processes, until) = &mut host.agent else {
            return;
        };
        let mut buffer = [0; 4096];
        loop {
            let read = host.connection.lock().agent_read(&mut buffer);
            match read {
                Ok(count) if count > 0 => decoder.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock && now < *until => break,
                _ => {
                    host.ends_from = self.now;
                    trace!(self, "host {position}: the agent ends, nothing was started");
                    return self.end_agent(position);
                }
            }
        }
        while let Ok(Some(message)) = decoder.next_message::<Request>() {
            match message.head {
                Request::Job(own) => *job = Some(own),
                Request::Process(process) => processes.push(*process),
                Request::Start(_) => {
                    let Some(job) = job.take() else { return };
                    let machine = SimHost(host.state.clone());
                    let processes = std::mem::take(processes);
                    let rest = decoder.rest();
                    let supervision = Supervision::begin(job, &processes, &rest, machine, now);
                    host.agent = Agent::Supervised(Box::new(supervision));
                    let failed = std::mem::take(&mut host.state.borrow_mut().not_started);
                    for index in failed {
                        let failed = Truth::Failed {
                            host: position,
                            index,
                            status: ProcessEnd::exited(126),
                            by: By::Itself,
                        };
                        self.truths.push((self.now, failed));
                    }
                    trace!(self, "host {position}: the processes are started");
                    return self.wake(Actor::Agent(position), self.now + 1);
                }
                _ => {}
            }
        }
        let at = host.clock.when(*until, self.now).max(self.now + 1);
        self.wake(Actor::Agent(position), at);
    }

    /// The watcher ends what is left of the processes.
    pub(super) fn guard(&mut self, position: usize, now: Instant) {
        let host = &mut self.hosts[position];
        let Agent::Guarded(termination) = &mut host.agent else {
            return;
        };
        let mut state = host.state.borrow_mut();
        let are_left = state.alive().next().is_some();
        match termination.step(are_left, now) {
            TerminationStep::Over => {
                drop(state);
                trace!(self, "host {position}: the watcher ends");
                return self.end_agent(position);
            }
            TerminationStep::Signal(signal) => state.signal_all(signal, By::Agent),
            TerminationStep::Wait => {}
        }
        drop(state);
        self.wake(Actor::Agent(position), self.now + WATCHER_PACE);
    }

    pub(super) fn end_agent(&mut self, position: usize) {
        let host = &mut self.hosts[position];
        host.agent = Agent::None;
        host.connection.lock().agent_ends();
        self.look_at_connection(position);
    }

    /// The hosts on which an agent still runs.
    pub fn agents(&self) -> impl Iterator<Item = usize> {
        let hosts = self.hosts.iter().enumerate();
        hosts
            .filter(|(_, host)| !matches!(host.agent, Agent::None))
            .map(|(position, _)| position)
    }
}

/// A turn of a supervisor, as that of host-agent: signals, requests, output, what is due, each as
/// far as poll(2) has found it `ready`. Returns whether it goes on.
fn run_supervision(
    supervision: &mut Supervision<SimHost>,
    connection: &Shared,
    [has_signals, has_requests, has_output]: [bool; 3],
    now: Instant,
) -> bool {
    let is_signalled = supervision.host.0.borrow().has_dead_child();
    if has_signals && is_signalled {
        supervision.collect_ended(now);
    }
    let mut buffer = [0; 16 << 10];
    while has_requests && !supervision.outbox.is_closed() {
        let read = connection.lock().agent_read(&mut buffer);
        match read {
            Ok(count) if count > 0 => supervision.receive(&buffer[..count], now),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            _ => supervision.launcher_is_gone(),
        }
    }
    let mut readable = supervision.host.0.borrow().readable();
    readable.retain(|_| has_output);
    for (index, stream) in readable {
        supervision.report_output(index, stream);
    }
    supervision.tick(now);
    let mut is_writable = true;
    while is_writable && !supervision.outbox.is_empty() {
        supervision.outbox.write_some(|bytes| {
            let written = connection.lock().agent_write(bytes);
            is_writable = written.is_ok();
            written
        });
    }
    !supervision.is_over()
}
