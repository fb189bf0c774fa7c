//! The tools' side of a conversation about files with one host: requests, events, and when the host
//! is given up.
//!
//! No conversation moves. That of the login stays to the end. Where the port of the host's agent
//! can be reached, a direct connection is opened beside it, with the same first request. Whether it
//! can is found out once, when it is known how much is to be carried. While there is a direct
//! connection, the login carries only signs of life and why the agent ends; all else goes over that
//! connection. When it breaks, the agent notes what came over it, and the rest is requested over
//! the login.

use crate::connections::{Connections, SharedConnections};
use crate::direct::{DirectEndpoint, NoDirectConnection, Wire, WireOptions};
use crate::limit::Limit;
use crate::{Body, HostFault, Session, SessionEvent};
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey};
use transfer::{silence, source};
use wire::files::{FileEvent, FileRequest, Listen, Ready};
use wire::{Event, Request};

/// The most bytes of events that may wait to be handled. Our agent never sends more than this.
const MOST_HELD: u64 = 32 << 20;
/// How long a host has to put away partial files.
const LEAVE: Duration = Duration::from_secs(5);

/// How often the login is looked at while files go over a direct connection. It tells when the
/// agent ends, and breaks when the network does.
const LOGIN_CHECK: Duration = Duration::from_millis(200);
/// How long the host has to end its direct connections. It may have a block to write.
const DIRECT_END: Duration = Duration::from_secs(20);
/// While bytes wait for their turn under a rate limit, what was let through is sent at this
/// interval.
const PACE: Duration = Duration::from_millis(20);

/// A host to which files go or from which they come.
pub struct HostClient {
    connections: SharedConnections,
    /// The first request over a direct connection.
    first: FileRequest,
    /// The number of a signal that ends everything.
    stop: Arc<AtomicUsize>,
    /// The rate limit that all hosts share.
    limit: Option<Arc<Limit>>,
    /// Why the login carries nothing any more.
    login_over: Option<HostFault>,
    looked_at_login: Instant,
    events: VecDeque<(FileEvent, Vec<u8>)>,
    /// How many bytes had come from the host when `events` was last empty.
    dealt_with: u64,
    /// Why nothing more comes. Every further call returns it again.
    over: Option<HostFault>,
    /// How many bytes waited to be sent when something last moved, and when that was.
    moved: (u64, Instant),
    syncs: u64,
    /// Answers to questions up to this number are of no interest any longer.
    forgotten: u64,
    /// The port and key with which the agent listens, for this tool and for hosts that hand files
    /// on.
    listens: Option<(u16, PublicKey)>,
    /// Whether the caller handles events about files that hosts hand on; otherwise they come too
    /// late.
    pub hears_of_chains: bool,
}

impl HostClient {
    /// Sends the first request and waits until the host is ready. `stop` becomes the number of a
    /// signal that ends everything.
    pub fn begin(
        session: Session,
        stop: Arc<AtomicUsize>,
        first: FileRequest,
    ) -> Result<(HostClient, Ready), HostFault> {
        let mut client = HostClient::new(session, stop, &first);
        client.send(first);
        let ready = client.ready()?;
        Ok((client, ready))
    }

    /// Waits for what the host reports about its folder.
    pub fn ready(&mut self) -> Result<Ready, HostFault> {
        match self.next_event()?.0 {
            FileEvent::Ready(ready) => Ok(ready),
            other => Err(HostFault::unexpected(&other)),
        }
    }

    fn new(login: Session, stop: Arc<AtomicUsize>, first: &FileRequest) -> HostClient {
        let now = Instant::now();
        let mut first = first.clone();
        if let FileRequest::Receive(receive) = &mut first {
            receive.direct = true;
        }
        HostClient {
            connections: SharedConnections::new(login),
            first,
            stop,
            limit: None,
            login_over: None,
            looked_at_login: now,
            events: VecDeque::new(),
            dealt_with: 0,
            over: None,
            moved: (0, now),
            syncs: 0,
            forgotten: 0,
            listens: None,
            hears_of_chains: false,
        }
    }

    /// From here on, bytes wait for their turn under this limit, in both directions.
    pub fn keep_to(&mut self, limit: Option<Arc<Limit>>) {
        self.limit = limit;
    }

    /// Waits until this many bytes may go.
    fn pace(&mut self, bytes: usize) {
        let Some(limit) = self.limit.as_ref().filter(|_| bytes > 0) else {
            return;
        };
        let now = Instant::now();
        let until = now + limit.let_through(bytes as u64, now);
        while Instant::now() < until && self.signal() == 0 {
            self.connections().beat_and_flush();
            std::thread::sleep(PACE.min(until.saturating_duration_since(Instant::now())));
        }
        // the host was not listened to in the meantime
        self.moved.1 = Instant::now();
    }

    /// Opens a direct connection for files if that is wanted, possible and worth it for `bytes`, to
    /// be called once. Nothing may be under way. Agents with the keys `hosts` may hand files on
    /// to this host. Returns a warning for people if a direct connection was wanted and is not
    /// possible.
    pub fn choose_wire(
        &mut self,
        address: Ipv4Addr,
        bytes: u64,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Option<String>, HostFault> {
        let is_local = self.connections().login.is_local();
        if !wire.is_worth(address, is_local, bytes) {
            return Ok(None);
        }
        let Err(none) = self.go_direct(address, wire, hosts)? else {
            return Ok(None);
        };
        match (wire.wire, none) {
            (Wire::Direct, none) => {
                let fault = HostFault::unreachable(format!("there is no direct way to it: {none}"));
                Err(fault.fix(
                    "open the port for this machine in the firewall, choose one that is open with \
                     DGL_TOOLS_DATA_PORT, or leave out --wire direct",
                ))
            }
            (_, none @ NoDirectConnection::OtherKey) => Ok(Some(format!(
                "{none}: nothing was sent there; its login is used instead"
            ))),
            (_, NoDirectConnection::Closed(_)) => Ok(None),
        }
    }

    fn go_direct(
        &mut self,
        address: Ipv4Addr,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Result<(), NoDirectConnection>, HostFault> {
        let endpoint = match self.ask_for_endpoint(address, wire, hosts)? {
            Ok(endpoint) => endpoint,
            Err(none) => return Ok(Err(none)),
        };
        self.listens = Some((endpoint.address.port(), endpoint.key));
        let session = match endpoint.connect(Instant::now() + wire.limit()) {
            Ok(session) => session,
            Err(none) => return Ok(Err(none)),
        };
        self.connections().direct = Some(session);
        self.begin_conversation();
        self.send(self.first.clone());
        Ok(Ok(()))
    }

    fn ask_for_endpoint(
        &mut self,
        address: Ipv4Addr,
        wire: &WireOptions,
        hosts: &[String],
    ) -> Result<Result<DirectEndpoint, NoDirectConnection>, HostFault> {
        let failed = |error: std::io::Error| HostFault::reported(error.to_string());
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
            } => Ok(Err(NoDirectConnection::Closed(problem))),
            FileEvent::Listening { port, key, .. } => {
                let key = PublicKey::try_from(key).map_err(HostFault::reported)?;
                Ok(Ok(DirectEndpoint {
                    address: SocketAddr::from((address, port)),
                    identity,
                    key,
                }))
            }
            other => Err(HostFault::unexpected(&other)),
        }
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock()
    }

    /// Whether files go over a direct connection.
    pub fn is_direct(&self) -> bool {
        self.connections().direct.is_some()
    }

    /// The port and the public key with which the agent listens for hosts that hand files on.
    pub fn listens(&self) -> Option<(u16, String)> {
        self.listens.map(|(port, key)| (port, key.to_string()))
    }

    /// How many bytes wait to be sent.
    pub fn pending(&self) -> u64 {
        self.connections().carrier().pending()
    }

    /// Bytes that have come over the connection over which files go.
    fn received(&self) -> u64 {
        self.connections().carrier().received()
    }

    /// The number of a signal that ends everything; 0 if none came.
    fn signal(&self) -> usize {
        self.stop.load(Ordering::Relaxed)
    }

    /// After a direct connection broke, files go over the login if it is still there. What was
    /// under way has to be requested and sent again. The error is the cause of the break, if the
    /// host or the login tells it.
    fn end_direct(&mut self, broken: HostFault) -> Result<(), HostFault> {
        if self.signal() != 0 || self.login_over.is_some() {
            return Err(self.login_over.clone().unwrap_or(broken));
        }
        self.connections().direct = None;
        self.over = None;
        self.begin_conversation();
        self.send(FileRequest::EndDirect);
        let number = self.sync();
        let until = Instant::now() + DIRECT_END;
        while Instant::now() < until {
            match self.take_event() {
                Some((FileEvent::Synced { number: event }, _)) if event == number => return Ok(()),
                Some(_) => {}
                None => self.exchange(Duration::from_millis(200))?,
            }
        }
        Err(HostFault::unreachable(
            "connection lost: the host does not answer",
        ))
    }

    /// What broke was a direct connection, as a rule: then files go over the login from here on,
    /// and what people should know is returned. An error where there is no such way.
    pub fn fall_back(&mut self, broken: HostFault, wire: Wire) -> Result<&'static str, HostFault> {
        if !self.is_direct() || wire == Wire::Direct {
            return Err(broken);
        }
        self.end_direct(broken)?;
        Ok("its direct connection broke; its login is used instead")
    }

    /// Files go over another connection now.
    fn begin_conversation(&mut self) {
        self.events.clear();
        self.dealt_with = self.received();
        self.moved = (self.pending(), Instant::now());
    }

    /// Queues a request.
    pub fn send(&mut self, step: FileRequest) {
        self.send_with(step, Body::Bytes(Vec::new()));
    }

    /// Queues a request with bytes behind it.
    pub fn send_with(&mut self, step: FileRequest, body: Body) {
        self.pace(body.length());
        // if the host had nothing to do, its silence is counted from now on
        if self.pending() == 0 {
            self.moved.1 = Instant::now();
        }
        self.connections()
            .carrier()
            .send_with(&Request::File(step), body);
    }

    /// An empty buffer, if possible one whose bytes are sent.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.connections().carrier().buffer()
    }

    /// Whether bytes of a file that were read already are sent at less cost than from the file.
    pub fn copies_files(&self) -> bool {
        self.connections().carrier().is_direct()
    }

    /// Asks a question whose answer shows that everything before it was handled; returns its
    /// number.
    pub fn sync(&mut self) -> u64 {
        self.syncs += 1;
        self.send(FileRequest::Sync { number: self.syncs });
        self.syncs
    }

    /// Ignores the answers to all questions asked so far.
    pub fn forget_syncs(&mut self) {
        self.forgotten = self.syncs;
        let forgotten = self.forgotten;
        self.events
            .retain(|(event, _)| !is_answer(event, forgotten));
    }

    /// The next event that has come and was not taken yet.
    pub fn take_event(&mut self) -> Option<(FileEvent, Vec<u8>)> {
        let event = self.events.pop_front();
        if self.events.is_empty() {
            self.dealt_with = self.received();
        }
        event
    }

    /// The events that wait to be taken.
    pub fn events(&self) -> impl Iterator<Item = &FileEvent> {
        self.events.iter().map(|(event, _)| event)
    }

    /// Waits for the next event.
    pub fn next_event(&mut self) -> Result<(FileEvent, Vec<u8>), HostFault> {
        loop {
            if let Some(event) = self.take_event() {
                // a host whose events are not read sends no more
                self.pace(event.1.len());
                return Ok(event);
            }
            self.exchange(Duration::from_millis(200))?;
        }
    }

    /// Sends until at most `most` bytes are waiting; `moved` is called with the number of bytes
    /// sent.
    pub fn drain(&mut self, most: u64, moved: &dyn Fn(u64)) -> Result<(), HostFault> {
        let mut pending = self.pending();
        while pending > most {
            if let Some(broken) = &self.over {
                return Err(broken.clone());
            }
            self.exchange(Duration::from_millis(50))?;
            let now = self.pending();
            // sending may have brought events
            moved(pending.saturating_sub(now));
            pending = now;
        }
        Ok(())
    }

    /// What was wrong with a file that was sent.
    pub fn source_fault(&mut self) -> Option<String> {
        self.connections()
            .carrier()
            .source_fault()
            .map(|error| source::why(&error))
    }

    /// Does work that takes time here, such as a checksum, while the host is kept alive. The work
    /// is told to stop when nobody needs its result any longer, because this waits for its end.
    pub fn keep_alive_during<T: Send>(
        &mut self,
        work: impl FnOnce(&AtomicBool) -> T + Send,
    ) -> Result<T, HostFault> {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (done, result) = sync_channel(1);
            let stop = &stop;
            let work = move || done.send(work(stop));
            std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .map_err(|error| HostFault::reported(error.to_string()))?;
            let result = self.wait_for(&result);
            stop.store(true, Ordering::Relaxed);
            result
        })
    }

    fn wait_for<T>(&mut self, result: &Receiver<T>) -> Result<T, HostFault> {
        loop {
            match result.recv_timeout(Duration::from_secs(1)) {
                Ok(value) => return Ok(value),
                Err(RecvTimeoutError::Timeout) => self.exchange(Duration::ZERO)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(HostFault::reported("a thread ended"));
                }
            }
        }
    }

    /// Sends and receives for at most `limit`. Fails when nothing more can come and all events were
    /// taken.
    pub fn exchange(&mut self, limit: Duration) -> Result<(), HostFault> {
        if self.over.is_none() {
            self.step(limit);
        }
        match &self.over {
            Some(broken) if self.events.is_empty() => Err(broken.clone()),
            _ => Ok(()),
        }
    }

    fn step(&mut self, limit: Duration) {
        self.connections().beat();
        self.check_login();
        let events = self.connections().carrier().step(None, limit);
        for event in events {
            match event {
                SessionEvent::Event(Event::File(FileEvent::Silence { seconds }), _) => {
                    self.end_with(HostFault::unreachable(format!(
                        "connection lost: it heard nothing from here for {seconds} s"
                    )));
                }
                SessionEvent::Event(
                    Event::File(
                        FileEvent::Arrived { .. }
                        | FileEvent::HandedOn { .. }
                        | FileEvent::Refused { .. },
                    ),
                    _,
                ) if !self.hears_of_chains => {}
                // what it says of the folder is known from the login, and not waited for
                SessionEvent::Event(Event::File(FileEvent::Ready(_)), _) if self.is_direct() => {}
                SessionEvent::Event(Event::File(event), _) if is_answer(&event, self.forgotten) => {
                }
                SessionEvent::Event(Event::File(event), body) => {
                    self.events.push_back((event, body));
                }
                SessionEvent::Event(Event::Alive, _) => {}
                SessionEvent::Event(Event::Failed(failure), _) => {
                    self.end_with(HostFault::reported(failure.problem));
                }
                SessionEvent::Event(..) => {
                    self.end_with(HostFault::reported(
                        "protocol error: it sent what was not asked for",
                    ));
                }
                SessionEvent::Lost(why) => {
                    self.end_with(HostFault::unreachable(format!("connection lost: {why}")));
                }
            }
        }
        let signal = self.signal();
        if signal != 0 {
            let name = signal_name(signal);
            self.events.clear();
            self.end_with(HostFault::reported(format!("interrupted by SIG{name}")));
        }
        if self.received() - self.dealt_with > MOST_HELD {
            self.events.clear();
            self.end_with(HostFault::reported(format!(
                "it told more than {MOST_HELD} bytes that nobody asked for"
            )));
        } else if self.events.is_empty() {
            self.dealt_with = self.received();
        }
        self.check_silence();
    }

    fn check_login(&mut self) {
        if self.looked_at_login.elapsed() < LOGIN_CHECK {
            return;
        }
        self.looked_at_login = Instant::now();
        let events = match &mut *self.connections() {
            Connections { direct: None, .. } => return,
            Connections { login, .. } => login.step(None, Duration::ZERO),
        };
        for event in events {
            let broken = match event {
                SessionEvent::Event(Event::Failed(failure), _) => {
                    HostFault::reported(failure.problem)
                }
                SessionEvent::Event(..) => continue,
                SessionEvent::Lost(why) => {
                    HostFault::unreachable(format!("connection lost: {why}"))
                }
            };
            self.login_over.get_or_insert_with(|| broken.clone());
            self.over.get_or_insert(broken);
        }
    }

    fn check_silence(&mut self) {
        let (pending, last_received) = {
            let mut connections = self.connections();
            let carrier = connections.carrier();
            (carrier.pending(), carrier.last_received())
        };
        // what waits grows by our own signs of life: only less of it is movement
        if pending < self.moved.0 || last_received > self.moved.1 {
            self.moved.1 = Instant::now();
        }
        self.moved.0 = pending;
        if self.moved.1.elapsed() > silence() {
            let why = format!(
                "nothing went to it and nothing came from it for {} s",
                silence().as_secs()
            );
            self.end_with(HostFault::unreachable(why));
        }
    }

    /// the first reason counts; later ones follow from it
    fn end_with(&mut self, broken: HostFault) {
        self.over.get_or_insert(broken);
    }

    /// Ends the conversation and waits briefly until the host has cleaned up.
    pub fn end(self) {
        let mut connections = self.connections();
        if let Some(mut direct) = connections.direct.take() {
            direct.close_stdin();
            direct.step(None, Duration::ZERO);
        }
        connections.login.close_stdin();
        let until = Instant::now() + LEAVE;
        while Instant::now() < until {
            let events = connections
                .login
                .step(None, until.saturating_duration_since(Instant::now()));
            if events
                .iter()
                .any(|event| matches!(event, SessionEvent::Lost(_)))
            {
                return;
            }
        }
    }
}

/// Whether the event answers a question up to this number.
fn is_answer(event: &FileEvent, up_to: u64) -> bool {
    matches!(event, FileEvent::Synced { number } if *number <= up_to)
}

fn signal_name(signal: usize) -> String {
    record::exit::signal_name(i32::try_from(signal).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use transfer::beat_interval;

    fn session(program: &str) -> Session {
        Session::over(crate::program::run(Path::new("sh"), &["-c", program]).unwrap())
    }

    #[test]
    fn a_host_hears_of_a_tool_that_waits_for_its_turn_and_has_no_thread_for_it() {
        let events = std::env::temp_dir().join(format!("dgl-tools-paced-{}", std::process::id()));
        let find = FileRequest::Find { roots: Vec::new() };
        let mut client = HostClient::new(session("exec cat"), Arc::default(), &find);
        let program = format!("exec cat >{}", events.display());
        client.connections = SharedConnections::without_thread(session(&program));
        client.connections().beaten = Instant::now().checked_sub(beat_interval()).unwrap();
        client.keep_to(Some(Arc::new(Limit::new(1000))));
        // the second waits for the first, for 2 s
        client.pace(2100);
        client.pace(1);
        let text = std::fs::read_to_string(&events).unwrap();
        std::fs::remove_file(&events).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
