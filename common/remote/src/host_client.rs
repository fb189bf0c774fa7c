//! One host that files go to or come from: what is asked of it, what it tells, and when it is given
//! up.

use crate::direct::{Door, NoDoor, Wire, WireOptions};
use crate::limit::Limit;
use crate::{Session, SessionEvent};
use std::collections::VecDeque;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey};
use transfer::{BEAT, SILENCE};
use wire::files::{FileEvent, FileRequest, Listen};
use wire::{Event, Request};

/// What a host may tell before it is dealt with; one that tells more is none of ours.
const MOST_HELD: u64 = 32 << 20;
/// A host has so long to put away what is half done.
const LEAVE: Duration = Duration::from_secs(5);

/// While a direct connection carries the conversation, the login is looked at so often: it tells
/// when the agent ends, and ends with the network.
const LOOK_AT_LOGIN: Duration = Duration::from_millis(200);
/// The host has so long to take a conversation back to the login. It may have a block to write.
const TAKE_BACK: Duration = Duration::from_secs(20);
/// While bytes wait for their turn under a limit, what was let through is sent on so often.
const PACE: Duration = Duration::from_millis(20);

/// A host that files go to or come from.
pub struct HostClient {
    /// What carries the conversation.
    session: Session,
    /// The login, while a direct connection carries it.
    login: Option<Session>,
    /// Why the login carries nothing any more.
    login_over: Option<HostFailure>,
    /// Where further connections to this host go; `None` by logins.
    door: Option<Door>,
    looked_at_login: Instant,
    stop: Arc<AtomicUsize>,
    events: VecDeque<(FileEvent, Vec<u8>)>,
    /// What had come from the host when `events` was empty.
    dealt_with: u64,
    /// Why nothing more comes: whoever goes on asking hears it again.
    over: Option<HostFailure>,
    /// What was still to be sent when something last moved, and when that was.
    moved: (u64, Instant),
    beaten: Instant,
    /// What all hosts together keep to.
    limit: Option<Arc<Limit>>,
    syncs: u64,
    /// Up to this one answers to questions are of no interest any more.
    forgotten: u64,
    /// Where the agent listens, for this tool and for hosts that hand files on.
    listens: Option<(u16, PublicKey)>,
    /// Over what content goes was found out.
    wire_chosen: bool,
    /// What the host tells of files that hosts hand on is listened to; else it comes too late.
    pub hears_of_chains: bool,
    /// It is one more connection to a host.
    pub is_lane: bool,
}

/// What a host says of itself at first.
#[derive(Clone, Debug, Default)]
pub struct Ready {
    /// Room on the file system.
    pub free_bytes: Option<u64>,
    /// There was nothing where the files go.
    pub empty: bool,
    /// The public key of its agent, by which other hosts know it.
    pub key: Option<String>,
}

/// A host that cannot go on.
#[derive(Clone, Debug)]
pub struct HostFailure {
    /// The reason.
    pub why: String,
    /// It is not the host that said so: it cannot be reached any more.
    pub lost: bool,
    /// What to do about it, where that is known here.
    pub fix: Option<String>,
}

impl HostFailure {
    /// The host has a reason, or we have.
    pub fn reported(why: impl Into<String>) -> HostFailure {
        HostFailure {
            why: why.into(),
            lost: false,
            fix: None,
        }
    }

    /// The connection broke.
    pub fn lost(why: impl Into<String>) -> HostFailure {
        HostFailure {
            why: why.into(),
            lost: true,
            fix: None,
        }
    }

    /// What was told does not fit to what was asked.
    pub fn unexpected(told: &FileEvent) -> HostFailure {
        let text: String = format!("{told:?}").chars().take(100).collect();
        HostFailure::reported(format!("it told something that was not asked for: {text}"))
    }
}

impl HostClient {
    /// Asks the first thing, and waits until the host is ready. `stop` becomes the number of a
    /// signal that ends it all.
    pub fn begin(
        session: Session,
        stop: Arc<AtomicUsize>,
        first: FileRequest,
    ) -> Result<(HostClient, Ready), HostFailure> {
        let is_lane = matches!(&first, FileRequest::Receive(receive) if receive.lane);
        let mut client = HostClient::new(session, stop, is_lane);
        client.send(first);
        match client.next_event()?.0 {
            FileEvent::Ready {
                free_bytes,
                empty,
                key,
            } => Ok((
                client,
                Ready {
                    free_bytes,
                    empty,
                    key,
                },
            )),
            other => Err(HostFailure::unexpected(&other)),
        }
    }

    fn new(session: Session, stop: Arc<AtomicUsize>, is_lane: bool) -> HostClient {
        let now = Instant::now();
        HostClient {
            session,
            login: None,
            login_over: None,
            door: None,
            looked_at_login: now,
            stop,
            events: VecDeque::new(),
            dealt_with: 0,
            over: None,
            moved: (0, now),
            beaten: now,
            limit: None,
            syncs: 0,
            forgotten: 0,
            listens: None,
            wire_chosen: false,
            hears_of_chains: false,
            is_lane,
        }
    }

    /// From here on all that follows a line waits for its turn, in both directions.
    pub fn keep_to(&mut self, limit: Option<Arc<Limit>>) {
        self.limit = limit;
    }

    /// Waits until so many bytes have their turn.
    fn pace(&mut self, bytes: usize) {
        let Some(limit) = self.limit.as_ref().filter(|_| bytes > 0) else {
            return;
        };
        let now = Instant::now();
        let until = now + limit.let_through(bytes as u64, now);
        while Instant::now() < until && self.stop.load(Ordering::Relaxed) == 0 {
            self.beat();
            self.session.flush();
            if let Some(login) = &mut self.login {
                login.flush();
            }
            std::thread::sleep(PACE.min(until.saturating_duration_since(Instant::now())));
        }
        // nobody was listened to
        self.moved.1 = Instant::now();
    }

    /// Goes on over a direct connection where that is wanted, possible and worth it for so many
    /// bytes; finds that out once. Nothing may be under way. The agents that have the keys `hosts`
    /// may hand files on to it. What people should know of why it is not, if anything.
    pub fn choose_wire(
        &mut self,
        address: Ipv4Addr,
        bytes: u64,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Option<String>, HostFailure> {
        if self.wire_chosen || !wire.is_worth(address, bytes) {
            return Ok(None);
        }
        self.wire_chosen = true;
        let Err(none) = self.go_direct(address, wire, hosts)? else {
            return Ok(None);
        };
        match (wire.wire, none) {
            (Wire::Direct, none) => Err(HostFailure {
                fix: Some(
                    "open the port for this machine in the firewall, choose one that is open with \
                     --data-port, or leave out --wire direct"
                        .to_owned(),
                ),
                ..HostFailure::lost(format!("there is no direct way to it: {none}"))
            }),
            (_, none @ NoDoor::OtherKey) => Ok(Some(format!(
                "{none}: nothing was sent there; its login is used instead"
            ))),
            (_, NoDoor::Closed(_)) => Ok(None),
        }
    }

    fn go_direct(
        &mut self,
        address: Ipv4Addr,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Result<(), NoDoor>, HostFailure> {
        let door = match self.ask_for_door(address, wire, hosts)? {
            Ok(door) => door,
            Err(none) => return Ok(Err(none)),
        };
        self.listens = Some((door.address.port(), door.key));
        let limit = wire.limit();
        let connected = self.keep_alive_during(|| {
            door.connect(Instant::now() + limit)
                .map(|made| (door, made))
        })?;
        let (door, mut session) = match connected {
            Ok(connected) => connected,
            Err(none) => return Ok(Err(none)),
        };
        session.send(&Request::File(FileRequest::Continue));
        self.send(FileRequest::Move);
        self.login = Some(std::mem::replace(&mut self.session, session));
        self.door = Some(door);
        self.begin_conversation();
        match self.next_event()?.0 {
            FileEvent::Welcome => Ok(Ok(())),
            other => Err(HostFailure::unexpected(&other)),
        }
    }

    fn ask_for_door(
        &mut self,
        address: Ipv4Addr,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Result<Door, NoDoor>, HostFailure> {
        let failed = |error: std::io::Error| HostFailure::reported(error.to_string());
        let identity = Identity::new().map_err(failed)?;
        self.send(FileRequest::Listen(Listen {
            address,
            port: wire.data_port,
            key: identity.public_key().to_string(),
            hosts: hosts.to_vec(),
        }));
        match self.next_event()?.0 {
            FileEvent::Listening {
                problem: Some(problem),
                ..
            } => Ok(Err(NoDoor::Closed(problem))),
            FileEvent::Listening { port, key, .. } => {
                let key = PublicKey::try_from(key).map_err(HostFailure::reported)?;
                Ok(Ok(Door {
                    address: SocketAddr::from((address, port)),
                    identity,
                    key,
                }))
            }
            other => Err(HostFailure::unexpected(&other)),
        }
    }

    /// Whether a direct connection carries the conversation.
    pub fn is_direct(&self) -> bool {
        self.login.is_some()
    }

    /// The port and the public key with which the agent listens for hosts that hand files on.
    pub fn listens(&self) -> Option<(u16, String)> {
        self.listens.map(|(port, key)| (port, key.to_string()))
    }

    /// Bytes that are still to be sent.
    pub fn pending(&self) -> u64 {
        self.session.pending()
    }

    /// Where further connections to this host go, where that is not by logins.
    pub fn door(&self) -> Option<Door> {
        self.door.clone()
    }

    /// One more direct connection to a host, with its own conversation.
    pub fn through(
        door: &Door,
        stop: Arc<AtomicUsize>,
        first: FileRequest,
    ) -> Result<HostClient, HostFailure> {
        let made = door.connect(Instant::now() + SILENCE / 4);
        let session = made.map_err(|none| HostFailure::lost(none.to_string()))?;
        let is_lane = matches!(&first, FileRequest::Receive(receive) if receive.lane);
        let mut client = HostClient::new(session, stop, is_lane);
        client.send(first);
        for expected in [true, false] {
            match client.next_event()?.0 {
                FileEvent::Welcome if expected => {}
                FileEvent::Ready { .. } if !expected => {}
                other => return Err(HostFailure::unexpected(&other)),
            }
        }
        Ok(client)
    }

    /// After a direct connection broke, or one beside it: the login carries the conversation again,
    /// if it still can. What was under way has to be asked for and sent again. The error is the
    /// cause of it all, where the host or the login tells it.
    pub fn take_back(&mut self) -> Result<(), HostFailure> {
        let broken = self.login_over.clone().or(self.over.clone());
        let broken = broken.unwrap_or_else(|| HostFailure::lost("connection lost"));
        if self.stop.load(Ordering::Relaxed) != 0 || self.login_over.is_some() {
            return Err(broken);
        }
        let Some(login) = self.login.take() else {
            return Err(broken);
        };
        self.session = login;
        (self.door, self.over) = (None, None);
        self.begin_conversation();
        let number = self.sync();
        let until = Instant::now() + TAKE_BACK;
        while Instant::now() < until {
            match self.take_event() {
                Some((FileEvent::Synced { number: told }, _)) if told == number => return Ok(()),
                Some(_) => {}
                None => self.exchange(Duration::from_millis(200))?,
            }
        }
        Err(HostFailure::lost(
            "connection lost: the host does not answer",
        ))
    }

    /// Another session carries it now.
    fn begin_conversation(&mut self) {
        self.events.clear();
        self.dealt_with = self.session.received();
        self.moved = (self.session.pending(), Instant::now());
    }

    /// Puts a request behind what is still to be sent.
    pub fn send(&mut self, step: FileRequest) {
        self.send_with(step, &[]);
    }

    /// The same with bytes behind it.
    pub fn send_with(&mut self, step: FileRequest, body: &[u8]) {
        self.pace(body.len());
        self.begin_silence();
        self.session.send_with(&Request::File(step), body);
    }

    /// The same with bytes of a file behind it, without a copy where the connector can.
    pub fn send_file(&mut self, step: FileRequest, file: File, at: u64, length: usize) {
        self.pace(length);
        self.begin_silence();
        self.session
            .send_file(&Request::File(step), file, at, length);
    }

    /// The same with bytes of a file that were read already: `bytes` becomes what may be used to
    /// read the next ones. Without a copy over a direct connection.
    pub fn send_read(&mut self, step: FileRequest, bytes: &mut Vec<u8>) {
        self.pace(bytes.len());
        self.begin_silence();
        let body = std::mem::take(bytes);
        self.session.send_owned(&Request::File(step), body);
        *bytes = self.session.buffer();
    }

    /// Whether [`HostClient::send_read`] is cheaper than [`HostClient::send_file`].
    pub fn copies_files(&self) -> bool {
        self.session.is_direct()
    }

    /// Where the host had nothing to do, its silence begins now.
    fn begin_silence(&mut self) {
        if self.session.pending() == 0 {
            self.moved.1 = Instant::now();
        }
    }

    /// A question whose answer shows that all before it has been dealt with; its number.
    pub fn sync(&mut self) -> u64 {
        self.syncs += 1;
        self.send(FileRequest::Sync { number: self.syncs });
        self.syncs
    }

    /// Nobody waits for the answers to what was asked so far.
    pub fn forget_syncs(&mut self) {
        self.forgotten = self.syncs;
        let forgotten = self.forgotten;
        self.events.retain(|(told, _)| !is_answer(told, forgotten));
    }

    /// What the host told and nobody has taken yet.
    pub fn take_event(&mut self) -> Option<(FileEvent, Vec<u8>)> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.dealt_with = self.session.received();
        }
        event
    }

    /// What waits to be taken.
    pub fn events(&self) -> impl Iterator<Item = &FileEvent> {
        self.events.iter().map(|(told, _)| told)
    }

    /// Waits for what the host tells next.
    pub fn next_event(&mut self) -> Result<(FileEvent, Vec<u8>), HostFailure> {
        loop {
            if let Some(event) = self.take_event() {
                // a host that is not read from sends no more
                self.pace(event.1.len());
                return Ok(event);
            }
            self.exchange(Duration::from_millis(200))?;
        }
    }

    /// Sends until no more than this is waiting; `moved` is told of what went.
    pub fn drain(&mut self, most: u64, moved: &dyn Fn(u64)) -> Result<(), HostFailure> {
        let mut pending = self.session.pending();
        while pending > most {
            if let Some(broken) = &self.over {
                return Err(broken.clone());
            }
            self.exchange(Duration::from_millis(50))?;
            let now = self.session.pending();
            // a word to the host may have come to it
            moved(pending.saturating_sub(now));
            pending = now;
        }
        Ok(())
    }

    /// What was wrong with a file that was sent.
    pub fn source_fault(&mut self) -> Option<String> {
        self.session.source_fault().map(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
            _ => error.to_string(),
        })
    }

    /// While there is nothing to do: the host is told that we are here.
    pub fn keep_alive(&mut self) -> Result<(), HostFailure> {
        self.exchange(Duration::ZERO)
    }

    /// Does what takes its time here, such as a checksum, while the host hears from us.
    pub fn keep_alive_during<T: Send>(
        &mut self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, HostFailure> {
        std::thread::scope(|scope| {
            let (done, result) = sync_channel(1);
            scope.spawn(move || done.send(work()));
            loop {
                match result.recv_timeout(Duration::from_secs(1)) {
                    Ok(value) => return Ok(value),
                    Err(RecvTimeoutError::Timeout) => self.keep_alive()?,
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(HostFailure::reported("a thread ended"));
                    }
                }
            }
        })
    }

    /// Sends and hears for a while. An error when nothing more can come and all that came was
    /// taken.
    pub fn exchange(&mut self, limit: Duration) -> Result<(), HostFailure> {
        if self.over.is_none() {
            self.step(limit);
        }
        match &self.over {
            Some(broken) if self.events.is_empty() => Err(broken.clone()),
            _ => Ok(()),
        }
    }

    fn step(&mut self, limit: Duration) {
        self.beat();
        self.look_at_login();
        for heard in self.session.step(None, limit) {
            match heard {
                SessionEvent::Event(Event::File(FileEvent::Silence { seconds }), _) => {
                    self.end_with(HostFailure::lost(format!(
                        "connection lost: it heard nothing from here for {seconds} s"
                    )));
                }
                SessionEvent::Event(
                    Event::File(FileEvent::Came { .. } | FileEvent::HandedOn { .. }),
                    _,
                ) if !self.hears_of_chains => {}
                SessionEvent::Event(Event::File(told), _) if is_answer(&told, self.forgotten) => {}
                SessionEvent::Event(Event::File(told), body) => self.events.push_back((told, body)),
                SessionEvent::Event(Event::Alive, _) => {}
                SessionEvent::Event(Event::Failed(failure), _) => {
                    self.end_with(HostFailure::reported(failure.problem));
                }
                SessionEvent::Event(..) => {
                    self.end_with(HostFailure::reported(
                        "it told something that was not asked for",
                    ));
                }
                SessionEvent::Lost(why) => {
                    self.end_with(HostFailure::lost(format!("connection lost: {why}")));
                }
            }
        }
        let signal = self.stop.load(Ordering::Relaxed);
        if signal != 0 {
            let name = signal_name(signal);
            self.events.clear();
            self.end_with(HostFailure::reported(format!("interrupted by SIG{name}")));
        }
        if self.session.received() - self.dealt_with > MOST_HELD {
            self.events.clear();
            self.end_with(HostFailure::reported(format!(
                "it told more than {MOST_HELD} bytes that nobody asked for"
            )));
        } else if self.events.is_empty() {
            self.dealt_with = self.session.received();
        }
        self.look_for_silence();
    }

    /// The host is told now and then that we are here.
    fn beat(&mut self) {
        if self.beaten.elapsed() >= BEAT {
            self.beaten = Instant::now();
            self.session.send(&Request::Alive);
            if let Some(login) = &mut self.login {
                login.send(&Request::Alive);
            }
        }
    }

    fn look_at_login(&mut self) {
        let Some(login) = &mut self.login else { return };
        if self.looked_at_login.elapsed() < LOOK_AT_LOGIN {
            return;
        }
        self.looked_at_login = Instant::now();
        for heard in login.step(None, Duration::ZERO) {
            let broken = match heard {
                SessionEvent::Event(Event::Failed(failure), _) => {
                    HostFailure::reported(failure.problem)
                }
                SessionEvent::Event(..) => continue,
                SessionEvent::Lost(why) => HostFailure::lost(format!("connection lost: {why}")),
            };
            self.login_over.get_or_insert_with(|| broken.clone());
            self.over.get_or_insert(broken);
        }
    }

    fn look_for_silence(&mut self) {
        let pending = self.session.pending();
        if pending != self.moved.0 || self.session.last_heard() > self.moved.1 {
            self.moved = (pending, Instant::now());
        } else if self.moved.1.elapsed() > SILENCE {
            let why = format!(
                "nothing went to it and nothing came from it for {} s",
                SILENCE.as_secs()
            );
            self.end_with(HostFailure::lost(why));
        }
    }

    /// What was said first counts.
    fn end_with(&mut self, broken: HostFailure) {
        self.over.get_or_insert(broken);
    }

    /// Ends it and waits until the host has cleaned up, but not for long.
    pub fn end(mut self) {
        self.session.close_stdin();
        if let Some(login) = self.login.take() {
            self.session.step(None, Duration::ZERO);
            self.session = login;
            self.session.close_stdin();
        }
        let until = Instant::now() + LEAVE;
        while Instant::now() < until {
            let heard = self
                .session
                .step(None, until.saturating_duration_since(Instant::now()));
            if heard
                .iter()
                .any(|heard| matches!(heard, SessionEvent::Lost(_)))
            {
                return;
            }
        }
    }
}

/// Whether it answers one of our first questions.
fn is_answer(told: &FileEvent, up_to: u64) -> bool {
    matches!(told, FileEvent::Synced { number } if *number <= up_to)
}

fn signal_name(signal: usize) -> String {
    record::exit::signal_name(i32::try_from(signal).unwrap_or_default())
}
