//! The events between a job's dispatcher, which decides, and the executors, one for each host:
//!
//! ```text
//!     host-agent <──> Executor ── RunEvent ──> Inbox ──> Dispatcher ──> records, status, verdict
//!     (each host)     (a thread)                 ↑           │
//!                        ↑            signals ───┘           │
//!                        └────────── HostRequest ────────────┘
//! ```
//!
//! The inbox is bounded for each host, and the hosts take turns. A host that never stops sending
//! only blocks itself: it neither fills memory nor delays signals, deadlines or other hosts.

use parking_lot::{Condvar, Mutex};
use record::exit::SignalNumber;
use session::SessionEvent;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use wire::Request;

/// How many events of a host may wait before no more is read from it.
const MAX_WAITING_EVENTS: usize = 1024;
/// The same in bytes.
const MAX_WAITING_BYTES: u64 = 1 << 20;
/// How long to wait for room before checking the clock again.
const ROOM_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub enum RunEvent {
    /// A host, by its index, sent an event or is lost.
    Host(usize, SessionEvent),
    /// Requests the end of the job.
    Signal(SignalNumber),
    /// A signal that requests the progress of the job (SIGUSR1).
    StatusAsked,
    /// This launcher did not run for so long that hosts may have considered it lost.
    Paused(Duration),
}

#[derive(Debug)]
pub enum HostRequest {
    /// Send this to the host's agent.
    Send(Request),
    /// End the conversation after earlier requests; the agent then ends its part of the job.
    Close,
}

/// The signals and events to be handled. Each attempt of a job is a round with its own hosts;
/// signals are kept between rounds.
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
    /// The hosts with events, in the order of their turns.
    turns: VecDeque<usize>,
    /// Events of earlier rounds are dropped.
    round: u32,
}

#[derive(Default)]
struct HostQueue {
    /// Each with its size in bytes.
    events: VecDeque<(SessionEvent, u64)>,
    bytes: u64,
}

impl HostQueue {
    fn is_full(&self) -> bool {
        self.events.len() >= MAX_WAITING_EVENTS || self.bytes >= MAX_WAITING_BYTES
    }
}

impl Inbox {
    /// Begins a round with this many hosts; returns its number. Events of earlier rounds are then
    /// dropped.
    pub fn begin_round(&self, hosts: usize) -> u32 {
        let mut state = self.state.lock();
        state.hosts = (0..hosts).map(|_| HostQueue::default()).collect();
        state.turns.clear();
        state.round += 1;
        self.room.notify_all();
        state.round
    }

    /// Adds an event, to be handled before those of hosts.
    pub fn push_first(&self, event: RunEvent) {
        self.state.lock().signals.push_back(event);
        self.arrived.notify_one();
    }

    pub fn forget_signals(&self) {
        self.state.lock().signals.clear();
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

/// The end of the inbox for the executor of one host.
pub struct EventSender {
    pub inbox: Arc<Inbox>,
    pub round: u32,
    pub host_index: usize,
}

impl EventSender {
    pub fn send(&self, event: SessionEvent, bytes: u64) {
        let mut state = self.inbox.state.lock();
        if state.round == self.round {
            let host = &mut state.hosts[self.host_index];
            let was_empty = host.events.is_empty();
            host.bytes += bytes;
            host.events.push_back((event, bytes));
            if was_empty {
                state.turns.push_back(self.host_index);
            }
            self.inbox.arrived.notify_one();
        }
    }

    /// Whether the host has no room for more events.
    pub fn is_full(&self) -> bool {
        self.is_full_in(&self.inbox.state.lock())
    }

    /// Waits a moment for room for one more event.
    pub fn wait_for_room(&self) {
        let mut state = self.inbox.state.lock();
        let is_full = |state: &mut Queues| self.is_full_in(state);
        (self.inbox.room).wait_while_for(&mut state, is_full, ROOM_PAUSE);
    }

    fn is_full_in(&self, state: &Queues) -> bool {
        state.round == self.round && state.hosts[self.host_index].is_full()
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

    fn senders<const N: usize>(inbox: &Arc<Inbox>) -> [EventSender; N] {
        let round = inbox.begin_round(N);
        std::array::from_fn(|host_index| EventSender {
            inbox: Arc::clone(inbox),
            round,
            host_index,
        })
    }

    #[test]
    fn signals_come_first_and_hosts_take_turns() {
        let inbox = Arc::<Inbox>::default();
        let hosts: [EventSender; 3] = senders(&inbox);
        for why in ["a", "b", "c"] {
            hosts[1].send(lost(why), 1);
        }
        hosts[2].send(lost("x"), 1);
        inbox.push_first(RunEvent::Signal(SignalNumber::INT));
        let got: Vec<String> = (0..5).map(|_| events(inbox.next(Duration::ZERO))).collect();
        assert_eq!(got, ["signal INT", "1a", "2x", "1b", "1c"]);
        assert!(inbox.next(Duration::ZERO).is_none());
        inbox.begin_round(3);
        hosts[1].send(lost("late"), 1);
        assert!(inbox.next(Duration::ZERO).is_none());
    }

    #[test]
    fn a_host_that_talks_without_end_waits_and_others_do_not() {
        let inbox = Arc::<Inbox>::default();
        let [talker, other] = senders(&inbox);
        (0..2).for_each(|_| talker.send(lost(""), MAX_WAITING_BYTES / 2));
        assert!(talker.is_full() && !other.is_full());
        assert!(matches!(
            inbox.next(Duration::ZERO),
            Some(RunEvent::Host(0, _))
        ));
        assert!(!talker.is_full());
        (0..MAX_WAITING_EVENTS).for_each(|_| other.send(lost(""), 0));
        assert!(other.is_full());
    }
}
