//! The inbox of a job, where signals and the events of all hosts wait to be handled.
//!
//! It is bounded for each host, and the hosts take turns. A host that never stops sending only
//! blocks itself: it neither fills the memory nor delays signals, deadlines or other hosts.

use parking_lot::{Condvar, Mutex};
use record::exit::SignalNumber;
use session::SessionEvent;
use std::collections::VecDeque;
use std::time::Duration;

/// How many bytes of a host's events may wait before no more is read from the host.
const MAX_WAITING_EVENTS: usize = 1024;
const MAX_WAITING_BYTES: u64 = 1 << 20;
/// How long to wait for room in a full inbox before the clock is checked again.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

/// An event of the job.
#[derive(Debug)]
pub enum RunEvent {
    /// A host, by its index, sent an event or is lost.
    Host(usize, SessionEvent),
    /// A signal that requests the end of the job.
    Signal(SignalNumber),
    /// A signal that requests the progress of the job (SIGUSR1).
    StatusAsked,
    /// This launcher did not run for so long that hosts may have considered it lost.
    Paused(Duration),
}

/// The signals and events that wait to be handled. Each attempt of a job is a round with its own
/// hosts; signals are kept between rounds.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<Queues>,
    arrived: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Queues {
    signals: VecDeque<RunEvent>,
    hosts: Vec<HostQueue>,
    /// The hosts that have events, in the order of their turns.
    turns: VecDeque<usize>,
    /// The number of the round. Events of earlier rounds are dropped.
    round: u32,
}

#[derive(Default)]
struct HostQueue {
    /// The events, each with its size in bytes.
    events: VecDeque<(SessionEvent, u64)>,
    bytes: u64,
}

impl HostQueue {
    fn is_full(&self) -> bool {
        self.events.len() >= MAX_WAITING_EVENTS || self.bytes >= MAX_WAITING_BYTES
    }
}

impl Inbox {
    /// Begins a round with this many hosts; returns its number. From now on only events of this
    /// round are accepted.
    pub fn begin_round(&self, hosts: usize) -> u32 {
        let mut state = self.state.lock();
        state.hosts = (0..hosts).map(|_| HostQueue::default()).collect();
        state.turns.clear();
        state.round += 1;
        self.room.notify_all();
        state.round
    }

    /// Ends a round, unless another one has begun.
    pub fn end_round(&self, round: u32) {
        if self.state.lock().round == round {
            self.begin_round(0);
        }
    }

    /// Adds an event that is handled before those of hosts.
    pub fn push_first(&self, event: RunEvent) {
        self.state.lock().signals.push_back(event);
        self.arrived.notify_one();
    }

    /// Drops all events that do not come from hosts.
    pub fn forget_signals(&self) {
        self.state.lock().signals.clear();
    }

    /// Adds an event of a host after its others.
    pub fn push(&self, round: u32, host_index: usize, event: SessionEvent, bytes: u64) {
        let mut state = self.state.lock();
        if state.round == round {
            let host = &mut state.hosts[host_index];
            let was_empty = host.events.is_empty();
            host.bytes += bytes;
            host.events.push_back((event, bytes));
            if was_empty {
                state.turns.push_back(host_index);
            }
            self.arrived.notify_one();
        }
    }

    /// Whether there is no room for more events of a host.
    pub fn is_full(&self, round: u32, host_index: usize) -> bool {
        let state = self.state.lock();
        state.round == round && state.hosts[host_index].is_full()
    }

    /// Waits a moment for room for one more event of a host.
    pub fn wait_for_room(&self, round: u32, host_index: usize) {
        let is_full =
            |state: &mut Queues| state.round == round && state.hosts[host_index].is_full();
        let mut state = self.state.lock();
        self.room.wait_while_for(&mut state, is_full, ROOM_PAUSE);
    }

    /// The next event, signals first; `None` if none arrives within the limit.
    pub fn next(&self, limit: Duration) -> Option<RunEvent> {
        let mut state = self.state.lock();
        let is_empty = |state: &mut Queues| state.is_empty();
        self.arrived.wait_while_for(&mut state, is_empty, limit);
        if let Some(signal) = state.signals.pop_front() {
            return Some(signal);
        }
        let host_index = state.turns.pop_front()?;
        let host = &mut state.hosts[host_index];
        let was_full = host.is_full();
        let (event, bytes) = host.events.pop_front()?;
        host.bytes -= bytes;
        if !host.events.is_empty() {
            state.turns.push_back(host_index);
        }
        if was_full {
            self.room.notify_all();
        }
        Some(RunEvent::Host(host_index, event))
    }
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.signals.is_empty() && self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(why: &str) -> SessionEvent {
        SessionEvent::Lost(why.to_owned())
    }

    fn events(event: Option<RunEvent>) -> String {
        match event {
            Some(RunEvent::Host(host_index, SessionEvent::Lost(why))) => {
                format!("{host_index}{why}")
            }
            Some(RunEvent::Signal(number)) => format!("signal {number}"),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn signals_come_first_and_hosts_take_turns() {
        let inbox = Inbox::default();
        let round = inbox.begin_round(3);
        ["a", "b", "c"]
            .iter()
            .for_each(|why| inbox.push(round, 1, lost(why), 1));
        inbox.push(round, 2, lost("x"), 1);
        inbox.push_first(RunEvent::Signal(SignalNumber::INT));
        let got: Vec<String> = (0..5).map(|_| events(inbox.next(Duration::ZERO))).collect();
        assert_eq!(got, ["signal INT", "1a", "2x", "1b", "1c"]);
        assert!(inbox.next(Duration::ZERO).is_none());
        inbox.begin_round(3);
        inbox.push(round, 1, lost("late"), 1);
        assert!(inbox.next(Duration::ZERO).is_none());
    }

    #[test]
    fn a_host_that_talks_without_end_waits_and_others_do_not() {
        let inbox = Inbox::default();
        let round = inbox.begin_round(2);
        (0..2).for_each(|_| inbox.push(round, 0, lost(""), MAX_WAITING_BYTES / 2));
        assert!(inbox.is_full(round, 0) && !inbox.is_full(round, 1));
        assert!(matches!(
            inbox.next(Duration::ZERO),
            Some(RunEvent::Host(0, _))
        ));
        assert!(!inbox.is_full(round, 0));
        (0..MAX_WAITING_EVENTS).for_each(|_| inbox.push(round, 1, lost(""), 0));
        assert!(inbox.is_full(round, 1));
    }
}
