//! Chooses the connection for files to and from a host.
//!
//! Each connection has its own session. That of the login lasts until the end. As soon as the
//! amount of data is known, this tool tries once to open a direct connection to the port of the
//! host's agent, with the same first request. From then on the login carries only heartbeats, and
//! the reason if the agent ends. If the direct connection breaks, the agent records what has
//! arrived over it, and the rest is requested over the login.
//!
//! A host that receives nothing considers this tool lost and puts away unfinished files. The
//! threads that send files may wait minutes for a disk, if memory is short or a file server does
//! not answer, so a separate thread sends heartbeats to each host.

use crate::direct::{Wire, WireOptions};
use crate::file_session::FileSession;
use crate::limit::RateLimit;
use crate::{Body, HostFault, Session, SessionEvent};
use parking_lot::{Mutex, MutexGuard};
use record::exit::SignalNumber;
use session::TlsChannel;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey, TlsConnection};
use wire::files::{FileEvent, FileRequest, FolderReport, Listen};

/// The time for a host to put away partial files.
const LEAVE: Duration = Duration::from_secs(5);
/// While files use a direct connection, the login reports the end of the agent, and breaks with the
/// network.
const LOGIN_CHECK: Duration = Duration::from_millis(200);
/// The host may have to write a block before it ends its direct connections.
const DIRECT_END: Duration = Duration::from_secs(20);
/// How often bytes that a rate limit has admitted are sent while others wait for it.
const PACE: Duration = Duration::from_millis(20);
/// How often to check whether a heartbeat is due.
const BEAT_CHECK: Duration = Duration::from_secs(1);
/// The stack of a heartbeat thread, in bytes: there may be hundreds of them.
const STACK: usize = 256 << 10;
/// How long to wait for an answer before checking for a signal.
const TURN: Duration = Duration::from_millis(200);

pub struct HostLink {
    sessions: Arc<Mutex<Sessions>>,
    /// Also the first on a direct connection.
    first: FileRequest,
    /// The number of a signal that ends everything.
    stop: Arc<AtomicUsize>,
    /// Shared by all hosts.
    limit: Option<Arc<RateLimit>>,
    /// The port and key of the agent, for this tool and for hosts that pass files on.
    listens: Option<(u16, PublicKey)>,
}

struct Sessions {
    login: FileSession,
    /// It carries files while it exists.
    direct: Option<FileSession>,
    looked_at_login: Instant,
}

impl Sessions {
    fn carrier(&mut self) -> &mut FileSession {
        self.direct.as_mut().unwrap_or(&mut self.login)
    }

    fn beat_and_flush(&mut self) {
        for session in std::iter::once(&mut self.login).chain(&mut self.direct) {
            session.beat();
            session.session.flush();
        }
    }

    /// While files use a direct connection, the login reports why the agent has ended.
    fn look_at_login(&mut self) {
        let Some(direct) = &mut self.direct else {
            return;
        };
        self.login.beat();
        if self.looked_at_login.elapsed() >= LOGIN_CHECK {
            self.looked_at_login = Instant::now();
            self.login.receive(Duration::ZERO);
            if let Some(broken) = self.login.over() {
                direct.end_with(broken.clone());
            }
        }
    }
}

/// Waits, then sends heartbeats, unless the owner of the connections is using them and sends its
/// own. Returns whether the owner still exists.
fn beat(sessions: &Weak<Mutex<Sessions>>) -> bool {
    std::thread::sleep(BEAT_CHECK);
    let Some(sessions) = sessions.upgrade() else {
        return false;
    };
    if let Some(mut sessions) = sessions.try_lock() {
        sessions.beat_and_flush();
    }
    true
}

impl HostLink {
    /// Waits until the host is ready. `stop` becomes the number of a signal that ends everything.
    pub fn begin(
        login: Session,
        stop: Arc<AtomicUsize>,
        first: FileRequest,
    ) -> Result<(HostLink, FolderReport), HostFault> {
        let mut link = HostLink::new(login, stop, &first);
        let weak = Arc::downgrade(&link.sessions);
        // one for each host, because sending may block on a file; without it, heartbeats are still
        // sent whenever the owner sends or receives
        let _ = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || while beat(&weak) {});
        link.send(first);
        let ready = link.ready()?;
        Ok((link, ready))
    }

    fn new(login: Session, stop: Arc<AtomicUsize>, first: &FileRequest) -> HostLink {
        let mut first = first.clone();
        if let FileRequest::Receive(receive) = &mut first {
            receive.direct = true;
        }
        HostLink {
            sessions: Arc::new(Mutex::new(Sessions {
                login: FileSession::new(login, false),
                direct: None,
                looked_at_login: Instant::now(),
            })),
            first,
            stop,
            limit: None,
            listens: None,
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock()
    }

    pub fn ready(&mut self) -> Result<FolderReport, HostFault> {
        match self.next_event()?.0 {
            FileEvent::Ready(ready) => Ok(ready),
            other => Err(HostFault::unexpected(&other)),
        }
    }

    /// Applies a rate limit to both directions from now on.
    pub fn keep_to(&mut self, limit: Option<Arc<RateLimit>>) {
        self.limit = limit;
    }

    fn pace(&mut self, bytes: usize) {
        let Some(limit) = self.limit.as_ref().filter(|_| bytes > 0) else {
            return;
        };
        let now = Instant::now();
        let until = now + limit.let_through(bytes as u64, now);
        while Instant::now() < until && self.signal() == 0 {
            self.sessions().beat_and_flush();
            std::thread::sleep(PACE.min(until.saturating_duration_since(Instant::now())));
        }
        // nothing was read from the host meanwhile
        self.sessions().carrier().wakes();
    }

    /// Opens a direct connection if it is wanted, possible and worthwhile for `bytes`. Called once,
    /// while no transfer is in progress. Agents with the keys `hosts` may pass files on to this
    /// host. May return a warning.
    pub fn choose_wire(
        &mut self,
        address: Ipv4Addr,
        bytes: u64,
        wire: &WireOptions,
        hosts: &[PublicKey],
    ) -> Result<Option<String>, HostFault> {
        let is_local = self.sessions().login.session.is_local();
        if !wire.is_worth(address, is_local, bytes) {
            return Ok(None);
        }
        let Some((why, is_other_key)) = self.go_direct(address, wire, hosts)? else {
            return Ok(None);
        };
        if wire.wire == Wire::Direct {
            let fault = HostFault::unreachable(format!("it cannot be reached directly: {why}"));
            return Err(fault.fix(
                "open the port for this machine in the firewall, choose one that is open with \
                 DGL_TOOLS_DATA_PORT, or leave out --wire direct",
            ));
        }
        Ok(is_other_key.then(|| format!("{why}: nothing was sent; the login is used instead")))
    }

    /// Returns why there is none, and whether the port answers with another key.
    fn go_direct(
        &mut self,
        address: Ipv4Addr,
        wire: &WireOptions,
        hosts: &[PublicKey],
    ) -> Result<Option<(String, bool)>, HostFault> {
        let identity = Identity::new().map_err(|error| HostFault::reported(error.to_string()))?;
        self.send(FileRequest::Listen(Listen {
            address,
            port: wire.data_port,
            key: identity.public_key(),
            hosts: hosts.to_vec(),
        }));
        let (port, key) = match self.next_event()?.0 {
            FileEvent::Listening {
                problem: Some(problem),
                ..
            } => return Ok(Some((problem, false))),
            FileEvent::Listening {
                port,
                key: Some(key),
                ..
            } => (port, key),
            other => return Err(HostFault::unexpected(&other)),
        };
        self.listens = Some((port, key));
        let location = SocketAddr::from((address, port));
        // the first event shows that the host has accepted this tool's key
        let (link, plain) = match TlsConnection::open(location, &identity, key, wire.limit(), true)
        {
            Ok(opened) => opened,
            Err(error) if tls::is_wrong_key(&error) => {
                let why = "the port answers with a different key than the host announced";
                return Ok(Some((why.to_owned(), true)));
            }
            Err(error) => return Ok(Some((format!("{location}: {error}"), false))),
        };
        let session = Session::new(Box::new(TlsChannel::new(link, plain)));
        self.sessions().direct = Some(FileSession::new(session, true));
        self.send(self.first.clone());
        Ok(None)
    }

    pub fn is_direct(&self) -> bool {
        self.sessions().direct.is_some()
    }

    /// The port and key of the agent, for hosts that pass files on.
    pub fn listens(&self) -> Option<(u16, PublicKey)> {
        self.listens
    }

    /// As `FileSession::expects_nothing` does.
    pub fn expects_nothing(&mut self) {
        self.sessions().carrier().expects_nothing();
    }

    /// As `FileSession::hear_of_chains` does.
    pub fn hear_of_chains(&mut self, hears: bool) {
        self.sessions().carrier().hear_of_chains(hears);
    }

    pub fn pending(&self) -> u64 {
        self.sessions().carrier().session.pending()
    }

    /// 0 if there was none.
    fn signal(&self) -> usize {
        self.stop.load(Ordering::Relaxed)
    }

    /// Falls back to the login if a direct connection broke, with a message for the user. Transfers
    /// in progress must be requested and sent again. If there was none, fails with the cause, as
    /// the host or the login reports it.
    pub fn fall_back(&mut self, broken: HostFault, wire: Wire) -> Result<&'static str, HostFault> {
        let mut sessions = self.sessions();
        if sessions.direct.is_none() || wire == Wire::Direct {
            return Err(broken);
        }
        if let Some(over) = sessions.login.over() {
            return Err(over.clone());
        }
        if self.signal() != 0 {
            return Err(broken);
        }
        sessions.direct = None;
        sessions.login.begin_again();
        drop(sessions);
        self.send(FileRequest::EndDirect);
        let number = self.sync();
        let until = Instant::now() + DIRECT_END;
        while Instant::now() < until {
            match self.take_event() {
                Some((FileEvent::Synced { number: event }, _)) if event == number => {
                    return Ok("its direct connection broke; its login is used instead");
                }
                Some(_) => {}
                None => self.exchange(TURN)?,
            }
        }
        Err(HostFault::unreachable(
            "connection lost: the host does not answer",
        ))
    }

    pub fn send(&mut self, step: FileRequest) {
        self.send_with(step, Body::Bytes(Vec::new()));
    }

    pub fn send_with(&mut self, step: FileRequest, body: Body) {
        self.pace(body.length());
        self.sessions().carrier().send(step, body);
    }

    /// Reused if possible.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.sessions().carrier().session.buffer()
    }

    /// Whether sending from memory costs less than from a file.
    pub fn copies_files(&self) -> bool {
        self.sessions().carrier().session.is_direct()
    }

    pub fn sync(&mut self) -> u64 {
        self.sessions().carrier().sync()
    }

    pub fn take_event(&mut self) -> Option<(FileEvent, Vec<u8>)> {
        self.sessions().carrier().take_event()
    }

    pub fn next_event(&mut self) -> Result<(FileEvent, Vec<u8>), HostFault> {
        loop {
            if let Some(event) = self.take_event() {
                // a host whose events are not read stops sending
                self.pace(event.1.len());
                return Ok(event);
            }
            self.exchange(TURN)?;
        }
    }

    /// Sends until at most `most` bytes wait.
    pub fn drain(&mut self, most: u64) -> Result<(), HostFault> {
        while self.pending() > most {
            if let Some(broken) = self.sessions().carrier().over() {
                return Err(broken.clone());
            }
            self.exchange(Duration::from_millis(50))?;
        }
        Ok(())
    }

    pub fn source_fault(&mut self) -> Option<io::Error> {
        self.sessions().carrier().session.source_fault()
    }

    /// Does work such as a checksum while heartbeats keep the connection. This function waits for
    /// it, so a flag asks it to stop once its result is not needed.
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
                Err(RecvTimeoutError::Timeout) => {
                    self.exchange(Duration::ZERO)?;
                    self.expects_nothing();
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(HostFault::reported("a thread of this tool failed"));
                }
            }
        }
    }

    /// Exchanges data for at most `limit`. Fails when nothing more can arrive and all events were
    /// taken.
    pub fn exchange(&mut self, limit: Duration) -> Result<(), HostFault> {
        let mut sessions = self.sessions();
        sessions.look_at_login();
        let carrier = sessions.carrier();
        carrier.beat();
        let exchanged = carrier.exchange(limit);
        let signal = self.signal();
        if signal == 0 || carrier.over().is_some() {
            return exchanged;
        }
        let signal = SignalNumber(i32::try_from(signal).unwrap_or_default());
        let interrupted = HostFault::reported(format!("interrupted by SIG{signal}"));
        carrier.end_at_once(interrupted.clone());
        Err(interrupted)
    }

    /// Waits briefly until the host has cleaned up.
    pub fn end(self) {
        let mut sessions = self.sessions();
        if let Some(mut direct) = sessions.direct.take() {
            direct.session.close_stdin();
            direct.session.step(None, Duration::ZERO);
        }
        let login = &mut sessions.login.session;
        login.close_stdin();
        let until = Instant::now() + LEAVE;
        while Instant::now() < until {
            let events = login.step(None, until.saturating_duration_since(Instant::now()));
            if events
                .iter()
                .any(|event| matches!(event, SessionEvent::Lost(_)))
            {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use transfer::beat_interval;

    fn session(program: &str) -> Session {
        Session::new(crate::program::run(Path::new("sh"), &["-c", program]).unwrap())
    }

    fn link(program: &str) -> HostLink {
        let find = FileRequest::Find {
            roots: Vec::new(),
            enter: Vec::new(),
            mark: None,
        };
        HostLink::new(session(program), Arc::default(), &find)
    }

    /// When a heartbeat is due.
    fn is_due(session: &mut FileSession) {
        session.beaten = Instant::now().checked_sub(beat_interval()).unwrap();
    }

    #[test]
    fn a_host_hears_of_a_tool_that_waits_for_its_turn_and_has_no_thread_for_it() {
        let events = std::env::temp_dir().join(format!("dgl-tools-paced-{}", std::process::id()));
        let mut link = link(&format!("exec cat >{}", events.display()));
        is_due(&mut link.sessions().login);
        link.keep_to(Some(Arc::new(RateLimit::new(1000))));
        // the second heartbeat is due 2 s after the first
        link.pace(2100);
        link.pace(1);
        let text = std::fs::read_to_string(&events).unwrap();
        std::fs::remove_file(&events).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn a_login_hears_of_the_tool_while_files_go_over_another_connection() {
        let link = link("exec cat");
        let mut sessions = link.sessions();
        sessions.direct = Some(FileSession::new(session("exec cat"), true));
        is_due(&mut sessions.login);
        sessions.look_at_login();
        assert_ne!(sessions.login.session.pending(), 0);
        is_due(sessions.carrier());
        sessions.carrier().beat();
        assert_ne!(sessions.carrier().session.pending(), 0);
    }
}
