//! The connected hosts of a job: a thread for each host, and an inbox for all events.

use super::host_loop::HostLoop;
use super::inbox::{Inbox, RunEvent};
use record::Host;
use session::{Session, Waker};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use wire::Request;

/// A host of the job: its record, its processes, and the session with its agent.
pub struct HostSession<'a> {
    /// The record of the host.
    pub host: &'a Host,
    /// The indices of its processes among the job's, in the order in which the agent numbers them.
    pub members: Vec<usize>,
    commands: Option<Sender<Request>>,
    waker: Arc<Waker>,
}

impl HostSession<'_> {
    /// Sends a request to the host's agent.
    pub fn send(&self, request: Request) {
        // a thread that has ended has reported the reason
        let sent = self
            .commands
            .as_ref()
            .is_some_and(|commands| commands.send(request).is_ok());
        if sent {
            self.waker.wake();
        }
    }

    /// Ends the conversation with the host; its agent then ends its part of the job.
    pub fn close(&mut self) {
        self.commands = None;
        self.waker.wake();
    }
}

impl Drop for HostSession<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

/// The hosts of a job, and their inbox.
pub struct ConnectedHosts<'a> {
    /// The sessions, in the order of the host records.
    pub sessions: Vec<HostSession<'a>>,
    inbox: Arc<Inbox>,
    round: u32,
}

impl<'a> ConnectedHosts<'a> {
    /// Runs the loops of sessions, each with its host and the indices of the host's processes.
    /// After the start of the job, a host that is silent for longer than `patience` is lost.
    pub fn new(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
        inbox: Arc<Inbox>,
    ) -> io::Result<ConnectedHosts<'a>> {
        let (connected, loops) = ConnectedHosts::with_loops(hosts, patience, inbox)?;
        for host_loop in loops {
            // these threads mostly wait and need little stack, and there may be thousands of them
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(move || host_loop.run())?;
        }
        Ok(connected)
    }

    /// The same with loops that the caller runs.
    pub fn with_loops(
        hosts: Vec<(&'a Host, Vec<usize>, Session)>,
        patience: Duration,
        inbox: Arc<Inbox>,
    ) -> io::Result<(ConnectedHosts<'a>, Vec<HostLoop>)> {
        let round = inbox.begin_round(hosts.len());
        let (mut sessions, mut loops) = (Vec::new(), Vec::new());
        for (host_index, (host, members, session)) in hosts.into_iter().enumerate() {
            let (commands, receiver) = channel();
            let waker = Arc::new(Waker::new()?);
            loops.push(HostLoop::new(
                (host_index, session),
                patience,
                (receiver, Arc::clone(&waker)),
                (Arc::clone(&inbox), round),
            ));
            sessions.push(HostSession {
                host,
                members,
                commands: Some(commands),
                waker,
            });
        }
        let connected = ConnectedHosts {
            sessions,
            inbox,
            round,
        };
        Ok((connected, loops))
    }

    /// The index of a process that belongs to this host.
    pub fn member(&self, host_index: usize, index: u32) -> Result<usize, String> {
        let member = self.sessions[host_index].members.get(index as usize);
        member
            .copied()
            .ok_or_else(|| format!("it has no process {index}"))
    }

    /// The index of a process, by the number of its host and its index on that host.
    pub fn position(&self, host: u32, index: u32) -> Option<usize> {
        let host = self
            .sessions
            .iter()
            .position(|session| session.host.id == host)?;
        self.member(host, index).ok()
    }

    /// Sends the same request to all agents.
    pub fn send_all(&self, request: &Request) {
        self.sessions
            .iter()
            .for_each(|session| session.send(request.clone()));
    }

    /// The next event, signals first; `None` if none arrives within the limit.
    pub fn next_event(&self, limit: Duration) -> Option<RunEvent> {
        self.inbox.next(limit)
    }
}

impl Drop for ConnectedHosts<'_> {
    fn drop(&mut self) {
        self.inbox.end_round(self.round);
    }
}
