//! A conversation about files over one connection, and why it ended.

use crate::{Body, HostFault, Session, SessionEvent};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use transfer::{beat_interval, longest_wait, silence};
use wire::files::{FileEvent, FileRequest};
use wire::{Event, Request};

/// How many bytes of events may wait. An honest agent never sends more.
const MOST_HELD: u64 = 32 << 20;

pub(crate) struct FileSession {
    pub(crate) session: Session,
    /// Events that wait to be handled.
    events: VecDeque<(FileEvent, Vec<u8>)>,
    /// The bytes received when all events were last handled.
    dealt_with: u64,
    /// How many more events the requests so far allow the host.
    owed: u64,
    /// Whether it was asked for a list that is not complete.
    lists: bool,
    /// Every further call returns it.
    over: Option<HostFault>,
    /// The bytes waiting to be sent when data was last transferred, and when that was.
    moved: (u64, Instant),
    /// Since when there was no progress. Heartbeats are none.
    waits_since: Instant,
    /// When the last heartbeat was sent.
    pub(crate) beaten: Instant,
    /// An earlier connection has received the facts about the directory.
    is_second: bool,
    /// Handles events about files that hosts pass on; otherwise these are late.
    hears_of_chains: bool,
    /// How many syncs were sent, and up to which number their answers are ignored.
    syncs: u64,
    forgotten: u64,
}

impl FileSession {
    pub(crate) fn new(session: Session, is_second: bool) -> FileSession {
        let now = Instant::now();
        FileSession {
            session,
            events: VecDeque::new(),
            dealt_with: 0,
            owed: 0,
            lists: false,
            over: None,
            moved: (0, now),
            waits_since: now,
            beaten: now,
            is_second,
            hears_of_chains: false,
            syncs: 0,
            forgotten: 0,
        }
    }

    pub(crate) fn send(&mut self, step: FileRequest, body: Body) {
        // the host had nothing to do until now
        if self.session.pending() == 0 {
            self.wakes();
        }
        let most = step.most_events(body.length() as u64);
        self.owed = self.owed.saturating_add(most);
        self.lists |= matches!(step, FileRequest::Find { .. });
        self.session.send_with(&Request::File(step), body);
    }

    /// Its answer shows that everything before it was handled. Returns its number.
    pub(crate) fn sync(&mut self) -> u64 {
        self.syncs += 1;
        let number = self.syncs;
        self.send(FileRequest::Sync { number }, Body::Bytes(Vec::new()));
        number
    }

    /// A chain begins or ends. At its end, events about it that are still to come are ignored as
    /// late.
    pub(crate) fn hear_of_chains(&mut self, hears: bool) {
        self.hears_of_chains = hears;
        self.forgotten = self.syncs;
        self.drop_late();
    }

    fn drop_late(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        events.retain(|(event, _)| !self.is_late(event));
        self.events = events;
    }

    /// Whether the event is no longer needed.
    fn is_late(&self, event: &FileEvent) -> bool {
        match event {
            FileEvent::Synced { number } => *number <= self.forgotten,
            FileEvent::Arrived { .. } | FileEvent::NotHandedOn { .. } => !self.hears_of_chains,
            // the first connection has reported these facts
            FileEvent::Ready(_) => self.is_second,
            _ => false,
        }
    }

    /// Counts an answer; returns whether the requests allow it.
    fn was_asked_for(&mut self, event: &FileEvent) -> bool {
        if let FileEvent::Found { last, .. } = event {
            let was_asked_for = self.lists;
            self.lists &= !last;
            return was_asked_for;
        }
        let is_owed = self.owed > 0;
        self.owed = self.owed.saturating_sub(1);
        is_owed
    }

    /// Sends a heartbeat if one is due after [`beat_interval`].
    pub(crate) fn beat(&mut self) {
        if self.beaten.elapsed() >= beat_interval() {
            self.beaten = Instant::now();
            self.session.send(&Request::Alive);
        }
    }

    /// Restarts the silence timer: nobody read from the host, or it had nothing to do.
    pub(crate) fn wakes(&mut self) {
        self.moved.1 = Instant::now();
        self.expects_nothing();
    }

    /// Does not wait for the host until now, which may send heartbeats meanwhile.
    pub(crate) fn expects_nothing(&mut self) {
        self.waits_since = Instant::now();
    }

    pub(crate) fn begin_again(&mut self) {
        self.events.clear();
        self.dealt_with = self.session.received();
        self.moved.0 = self.session.pending();
        self.wakes();
    }

    pub(crate) fn take_event(&mut self) -> Option<(FileEvent, Vec<u8>)> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.dealt_with = self.session.received();
        }
        event
    }

    pub(crate) fn over(&self) -> Option<&HostFault> {
        self.over.as_ref()
    }

    /// The first reason is kept, because later ones follow from it.
    pub(crate) fn end_with(&mut self, broken: HostFault) {
        self.over.get_or_insert(broken);
    }

    /// Like [`FileSession::end_with`], and drops what the host has sent before.
    pub(crate) fn end_at_once(&mut self, broken: HostFault) {
        self.events.clear();
        self.end_with(broken);
    }

    /// Gives up a host that neither accepts nor sends anything, or nothing but heartbeats. Fails
    /// when nothing more can arrive and all events were taken.
    pub(crate) fn exchange(&mut self, limit: Duration) -> Result<(), HostFault> {
        if self.over.is_none() {
            self.receive(limit);
            self.check_waits();
        }
        match &self.over {
            Some(broken) if self.events.is_empty() => Err(broken.clone()),
            _ => Ok(()),
        }
    }

    /// Sends and receives for at most `limit`.
    pub(crate) fn receive(&mut self, limit: Duration) {
        for event in self.session.step(None, limit) {
            match event {
                SessionEvent::Event(Event::File(FileEvent::Silence { seconds }), _) => {
                    self.end_with(lost(&format!(
                        "it received nothing from this machine for {seconds} s"
                    )));
                }
                SessionEvent::Event(Event::File(event), body) => {
                    if !self.was_asked_for(&event) {
                        let surplus = HostFault::protocol("more answers than requests");
                        self.end_at_once(surplus);
                    } else if event == FileEvent::Read {
                        self.expects_nothing();
                    } else if !self.is_late(&event) {
                        self.expects_nothing();
                        self.events.push_back((event, body));
                    }
                }
                SessionEvent::Event(Event::Alive, _) => {}
                SessionEvent::Event(Event::Failed(failure), _) => {
                    self.end_with(HostFault::reported(failure.problem));
                }
                SessionEvent::Event(..) => {
                    self.end_with(HostFault::protocol("unexpected answer"));
                }
                SessionEvent::Lost(why) => self.end_with(lost(&why)),
            }
        }
        let received = self.session.received();
        if self.events.is_empty() {
            self.dealt_with = received;
        } else if received - self.dealt_with > MOST_HELD {
            self.end_at_once(HostFault::protocol(format_args!(
                "more than {MOST_HELD} bytes that were not requested"
            )));
        }
    }

    fn check_waits(&mut self) {
        let pending = self.session.pending();
        // heartbeats of this tool lengthen the queue, so only a shorter one shows progress
        if pending < self.moved.0 {
            self.wakes();
        }
        self.moved = (pending, self.moved.1.max(self.session.last_received()));
        if self.moved.1.elapsed() > silence() {
            let seconds = silence().as_secs();
            self.end_with(HostFault::unreachable(format!(
                "no data was exchanged with it for {seconds} s"
            )));
        } else if self.waits_since.elapsed() > longest_wait() {
            let time = record::term::seconds(longest_wait());
            let fault =
                HostFault::unreachable(format!("it sent nothing but heartbeats for {time}"));
            self.end_with(fault.fix("check its disks and file servers, then run this again"));
        }
    }
}

fn lost(why: &str) -> HostFault {
    HostFault::unreachable(format!("connection lost: {why}"))
}
