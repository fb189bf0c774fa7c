//! Limits of time and bytes for a connection of libssh2. While packets keep arriving, libssh2 does
//! not return from a call or look at its timeout, and it keeps in memory what nobody asked for.
//! Only the end of the socket ends such a call. One thread watches all connections.

use super::HostFault;
use super::options::{RemoteOptions, STOP_CHECKED};
use host::{netlink, side_thread};
use parking_lot::Mutex;
use session::reasons;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of a login, and of what nobody has read after it. libssh2's window lets a host
/// send 2 MB ahead.
const MOST_UNREAD: u64 = 8 << 20;
/// A packet has up to 60 bytes beside its data, so small data takes twice its size.
const RECEIVED_PER_READ: u64 = 2;
/// The least packets: the agent may send ten heartbeats a second, of less than 100 bytes.
const UNREAD_PER_SECOND: u64 = 1 << 10;
/// A host allows more data by a packet of up to 64 bytes: sshd for about 96 KB, dropbear for 8 KiB.
const WRITTEN_PER_UNREAD: u64 = 100;

static ALL: Mutex<Vec<Weak<Guarded>>> = Mutex::new(Vec::new());

/// Why the guard ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breach {
    Late,
    SendsTooMuch,
    Stopped,
}

#[derive(Debug)]
struct Guarded {
    socket: TcpStream,
    since: Instant,
    /// `None` after the login.
    deadline: Mutex<Option<Instant>>,
    stop: Arc<AtomicUsize>,
    /// The bytes that libssh2 has returned, and those that it has accepted.
    read: AtomicU64,
    written: AtomicU64,
    breach: OnceLock<Breach>,
}

/// Must be dropped after the connection's session, which reads until then.
#[derive(Debug)]
pub struct Guard(Arc<Guarded>);

impl Guard {
    /// The login must end before `deadline`.
    pub fn new(
        socket: &TcpStream,
        deadline: Instant,
        options: &RemoteOptions,
    ) -> io::Result<Guard> {
        let guarded = Arc::new(Guarded {
            socket: socket.try_clone()?,
            since: Instant::now(),
            deadline: Mutex::new(Some(deadline)),
            stop: Arc::clone(&options.stop),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            breach: OnceLock::new(),
        });
        let mut all = ALL.lock();
        if all.is_empty() {
            side_thread::spawn("ssh2-guard", watch)?;
        }
        all.push(Arc::downgrade(&guarded));
        Ok(Guard(guarded))
    }

    /// From now on neither a deadline nor a signal ends the connection.
    pub fn login_is_over(&self) {
        *self.0.deadline.lock() = None;
    }

    pub fn has_read(&self, count: usize) {
        self.0.read.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn has_written(&self, count: usize) {
        self.0.written.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub fn is_late(&self) -> bool {
        self.0.breach.get() == Some(&Breach::Late)
    }

    /// For users: why a call failed that libssh2 explains by `message`.
    pub fn explain(&self, message: &str) -> String {
        match self.0.breach.get() {
            Some(Breach::Late) => reasons::LATE.to_owned(),
            Some(Breach::SendsTooMuch) => {
                let megabytes = MOST_UNREAD >> 20;
                format!("it sends too much: {megabytes} MB that are no answer")
            }
            Some(Breach::Stopped) | None => reasons::explain_libssh2(message).to_owned(),
        }
    }

    /// The fault of a login, or what replaces it if the guard ended the connection.
    pub fn fault(&self, fault: HostFault) -> HostFault {
        match self.0.breach.get() {
            Some(Breach::Stopped) => HostFault::stopped(),
            Some(Breach::SendsTooMuch) => HostFault::unreachable(self.explain(""))
                .fix("check what answers there: neither sshd nor host-agent sends that much"),
            Some(Breach::Late) | None => fault,
        }
    }
}

/// Runs as long as connections exist.
fn watch() {
    loop {
        thread::sleep(STOP_CHECKED);
        let mut all = ALL.lock();
        all.retain(|guarded| guarded.upgrade().is_some_and(|guarded| guarded.check()));
        if all.is_empty() {
            return;
        }
    }
}

impl Guarded {
    /// Ends the connection if it exceeds a limit, and returns whether to check it again.
    fn check(&self) -> bool {
        let Some(breach) = self.find_breach() else {
            return true;
        };
        // the call that this ends asks for it
        let _ = self.breach.set(breach);
        let _ = self.socket.shutdown(Shutdown::Both);
        false
    }

    fn find_breach(&self) -> Option<Breach> {
        if let Some(deadline) = *self.deadline.lock() {
            if self.stop.load(Ordering::Relaxed) != 0 {
                return Some(Breach::Stopped);
            }
            if Instant::now() >= deadline {
                return Some(Breach::Late);
            }
        }
        // a kernel without sock_diag limits only the time
        let received = netlink::bytes_received(&self.socket)?;
        (received > self.allowed(self.since.elapsed())).then_some(Breach::SendsTooMuch)
    }

    fn allowed(&self, age: Duration) -> u64 {
        let read = self.read.load(Ordering::Relaxed);
        let written = self.written.load(Ordering::Relaxed);
        MOST_UNREAD
            + RECEIVED_PER_READ * read
            + written / WRITTEN_PER_UNREAD
            + UNREAD_PER_SECOND * age.as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn in_s(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    /// A host that sends as much as it can, and the tool's end of its connection.
    fn flood() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut host, _) = listener.accept().unwrap();
        thread::spawn(move || while host.write_all(&[0; 64 << 10]).is_ok() {});
        socket
    }

    /// Reads until the connection ends, or `most` bytes; returns how many they were.
    fn drain(socket: &mut TcpStream, most: u64, mut each: impl FnMut(usize)) -> u64 {
        let (mut buffer, mut sum) = (vec![0; 256 << 10], 0);
        while sum < most {
            match socket.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    each(count);
                    sum += count as u64;
                }
            }
        }
        sum
    }

    const ENOUGH: u64 = 20 << 30;

    #[test]
    fn a_flood_that_nobody_reads_ends_during_a_login_and_after_it() {
        for is_login in [true, false] {
            let mut socket = flood();
            let guard = Guard::new(&socket, in_s(60), &RemoteOptions::without_settings()).unwrap();
            if !is_login {
                guard.login_is_over();
            }
            let sum = drain(&mut socket, ENOUGH, |_| {});
            assert!(sum < ENOUGH, "it went on, {is_login}");
            let why = guard.explain("transport read");
            assert_eq!(why, "it sends too much: 8 MB that are no answer");
            assert!(!guard.is_late());
        }
    }

    #[test]
    fn what_is_read_may_be_endless() {
        let mut socket = flood();
        let guard = Guard::new(&socket, in_s(60), &RemoteOptions::without_settings()).unwrap();
        guard.login_is_over();
        let until = in_s(2);
        while Instant::now() < until {
            let sum = drain(&mut socket, 1 << 20, |count| guard.has_read(count));
            assert!(sum >= 1 << 20, "{sum}");
        }
        assert_eq!(guard.explain("transport read"), reasons::CLOSED);
    }

    #[test]
    fn a_login_ends_at_its_deadline_or_with_the_tool_and_a_session_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (socket, listener.accept().unwrap().0)
        };
        let (mut late, _late_host) = connect();
        let guard = Guard::new(&late, Instant::now(), &RemoteOptions::without_settings()).unwrap();
        assert_eq!(drain(&mut late, 1, |_| {}), 0);
        assert!(guard.is_late());

        let (mut stopped, _stopped_host) = connect();
        let options = RemoteOptions::without_settings();
        let guard = Guard::new(&stopped, in_s(60), &options).unwrap();
        options.stop.store(15, Ordering::Relaxed);
        assert_eq!(drain(&mut stopped, 1, |_| {}), 0);
        let fault = guard.fault(HostFault::unreachable("x"));
        assert_eq!(fault.problem, HostFault::stopped().problem);

        let (mut open, mut host) = connect();
        let guard = Guard::new(&open, in_s(1), &options).unwrap();
        guard.login_is_over();
        thread::sleep(Duration::from_millis(1500));
        host.write_all(b"x").unwrap();
        assert_eq!(drain(&mut open, 1, |_| {}), 1);
    }
}
