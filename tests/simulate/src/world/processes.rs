//! What happens to the processes of a job, and what their peers make of it.

use super::{Actor, FEW_HOSTS, Host, Task, Truth, World, trace};
use crate::host::{By, ProcessEvent};
use crate::time::SECOND;
use record::exit::ProcessEnd;

impl World {
    /// Puts what will happen to processes into the queue.
    pub(super) fn take_coming(&mut self, position: usize) {
        let coming = std::mem::take(&mut self.hosts[position].state.borrow_mut().coming);
        for (after, pid, event) in coming {
            let happening = &mut self.hosts[position].happening;
            happening.push((pid, event));
            let task = Task::Process(position, self.attempt, happening.len() - 1);
            self.push(self.now.saturating_add(after), task);
        }
    }

    pub(super) fn process(&mut self, position: usize, pid: u32, event: ProcessEvent) {
        let host = &mut self.hosts[position];
        if host.sleeps_until > self.now {
            // it sleeps with its host
            host.state.borrow_mut().now = self.now;
            let after = host.sleeps_until - self.now;
            host.state.borrow_mut().coming.push((after, pid, event));
            return self.take_coming(position);
        }
        let mut state = host.state.borrow_mut();
        state.now = self.now;
        let is_daemon = state
            .processes
            .get(&pid)
            .is_some_and(|one| one.index.is_none());
        let hangs = state.idle_since.is_some();
        if hangs && matches!(event, ProcessEvent::Ends(_, By::Itself | By::Peers)) {
            state.coming.push((SECOND, pid, event));
            drop(state);
            return self.take_coming(position);
        }
        let ended = state.happens(pid, event);
        let index = state.processes.get(&pid).and_then(|one| one.index);
        drop(state);
        self.take_coming(position);
        if let (true, ProcessEvent::Ends(status, by), Some(index)) = (ended, event, index) {
            trace!(
                self,
                "host {position}: process {index} ends: {status:?} by {by:?}"
            );
            let by_agent = by == By::Agent;
            if !status.is_success() && !by_agent {
                let failed = Truth::Failed {
                    host: position,
                    index,
                    status,
                    by,
                };
                self.truths.push((self.now, failed));
            }
            if !status.is_success() {
                self.peers_fail(position);
            } else if self.serves(position, index) {
                let host = position;
                self.truths
                    .push((self.now, Truth::EndedEarly { host, index }));
            }
            self.clients_may_be_over();
        }
        if event == ProcessEvent::Writes || event == ProcessEvent::Listens || is_daemon || ended {
            self.wake_soon(Actor::Agent(position));
        }
    }

    /// The hosts whose processes notice that one on this host is gone. In a job with many hosts,
    /// these are its neighbours in a ring and in a tree.
    pub(super) fn peers(&self, host: usize) -> Vec<usize> {
        let count = self.hosts.len();
        if count <= FEW_HOSTS {
            return (0..count).collect();
        }
        let ring = [(host + count - 1) % count, host, (host + 1) % count];
        let tree = [host.saturating_sub(1) / 2, 2 * host + 1, 2 * host + 2];
        let tree = tree.into_iter().filter(|peer| *peer < count);
        ring.into_iter().chain(tree).collect()
    }

    /// The others notice that somebody is gone.
    pub(super) fn peers_fail(&mut self, host: usize) {
        let percent = self.schedule.peers_fail;
        for position in self.peers(host) {
            let mut state = self.hosts[position].state.borrow_mut();
            let pids: Vec<u32> = state.alive().map(|(pid, _)| *pid).collect();
            for pid in pids {
                if self.random.percent(percent) {
                    let after = self.random.magnitude(4 * SECOND);
                    let end = ProcessEvent::Ends(ProcessEnd::exited(1), By::Peers);
                    state.coming.push((after, pid, end));
                }
            }
            drop(state);
            self.take_coming(position);
        }
    }

    /// Servers end well after the last client, some by themselves.
    pub(super) fn clients_may_be_over(&mut self) {
        if self.are_clients_over {
            return;
        }
        let is_client_alive = |host: &Host| {
            let state = host.state.borrow();
            state.alive().any(|(_, one)| !one.serves)
        };
        let (before, after) = self.hosts.split_at(self.client_host);
        let mut hosts = after.iter().chain(before);
        if let Some(passed) = hosts.position(is_client_alive) {
            self.client_host = (self.client_host + passed) % self.hosts.len();
            return;
        }
        self.are_clients_over = self.hosts.len() > FEW_HOSTS;
        for position in 0..self.hosts.len() {
            let mut state = self.hosts[position].state.borrow_mut();
            let pids: Vec<u32> = state.alive().map(|(pid, _)| *pid).collect();
            for pid in pids {
                if self.random.percent(70) {
                    let after = self.random.magnitude(4 * SECOND);
                    let end = ProcessEvent::Ends(ProcessEnd::exited(0), By::Itself);
                    state.coming.push((after, pid, end));
                }
            }
            drop(state);
            self.take_coming(position);
        }
    }
}
