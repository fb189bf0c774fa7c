//! The executors of the launcher take turns; the launcher can be killed.

use super::{Actor, Agent, LAST_REQUESTS, World, trace};
use crate::time::MS;
use launcher::run::executor::ExecutorStep;
use std::time::Duration;

impl World {
    /// Turns the executor of a host until nothing more has arrived for it.
    pub fn turn_executor(&mut self, host: usize) {
        let (now, uptime) = self.launcher_clocks();
        let Some(executor) = &mut self.executors[host] else {
            return;
        };
        self.hosts[host].connection.lock().now = self.now;
        let mut next = ExecutorStep::Exchange(Duration::ZERO);
        let mut is_first = true;
        let mut unhandled = self.hosts[host].unhandled.take();
        loop {
            let events = match next {
                _ if unhandled.is_some() => unhandled.take().unwrap_or_default(),
                ExecutorStep::Exchange(_) => executor.session().step(None, Duration::ZERO),
                _ => Vec::new(),
            };
            if !is_first && events.is_empty() {
                break;
            }
            is_first = false;
            next = executor.turn(events, now, uptime);
            if !matches!(next, ExecutorStep::Exchange(_)) {
                break;
            }
        }
        match next {
            ExecutorStep::Exchange(limit) => {
                let at = self.now + crate::time::micros(limit);
                self.wake(Actor::Executor(host), at.max(self.now + 1));
            }
            ExecutorStep::WaitForRoom => self.wake(Actor::Executor(host), self.now + MS),
            ExecutorStep::End => drop(self.executors[host].take()),
            ExecutorStep::SendTheRest => self.close_executor(host),
        }
        self.look_at_connection(host);
        self.wake_soon(Actor::Launcher);
    }

    pub(super) fn close_executor(&mut self, host: usize) {
        if let Some(executor) = self.executors[host].take() {
            let connection = self.hosts[host].connection.clone();
            self.closing
                .push((host, executor, connection, self.now + LAST_REQUESTS));
            self.wake(Actor::Agent(host), self.now);
        }
    }

    /// Sends what the executors of an ended attempt have left.
    pub(super) fn flush_closing(&mut self) {
        let now = self.now;
        self.closing.retain_mut(|(_, executor, connection, until)| {
            connection.lock().now = now;
            executor.session().flush();
            executor.session().pending() > 0 && now < *until
        });
    }

    /// The attempt is over: nobody is interested in its hosts any longer.
    pub fn close_all_executors(&mut self) {
        for host in 0..self.executors.len() {
            self.turn_executor(host);
            self.close_executor(host);
        }
        self.flush_closing();
        for host in 0..self.hosts.len() {
            self.look_at_connection(host);
        }
    }

    pub(super) fn kill_launcher(&mut self) {
        trace!(self, "the launcher is killed");
        self.launcher_lives = false;
        for host in 0..self.hosts.len() {
            self.hosts[host].connection.lock().now = self.now;
        }
        self.executors.clear();
        self.closing.clear();
        for host in 0..self.hosts.len() {
            self.look_at_connection(host);
        }
    }

    /// Wakes the ends of a connection for what is under way.
    pub(super) fn look_at_connection(&mut self, host: usize) {
        let (to_agent, to_launcher) = {
            let connection = self.hosts[host].connection.lock();
            (
                connection.to_agent.readable_at(),
                connection.to_launcher.readable_at(),
            )
        };
        let reads = match &self.hosts[host].agent {
            Agent::Idle(..) => true,
            Agent::Supervised(supervision) => !supervision.outbox.is_closed(),
            Agent::None | Agent::Guarded(_) => false,
        };
        if reads {
            self.wake(Actor::Agent(host), to_agent);
        }
        if host < self.executors.len() && self.executors[host].is_some() {
            self.wake(Actor::Executor(host), to_launcher);
        }
    }
}
