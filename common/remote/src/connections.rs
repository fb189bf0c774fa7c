//! The connections to one host, its login and the direct connection beside it, and the thread that
//! keeps both alive.
//!
//! A host that hears nothing takes us for gone and puts away what is half done. The threads that
//! send files wait for disks: for minutes, where memory is short or a file server does not answer.
//! So it is not they who tell the hosts that we are here.

use crate::Session;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use transfer::beat_interval;
use wire::Request;

/// How often it is checked whether a sign of life is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The stack of a thread that beats, in bytes: there may be hundreds.
const STACK: usize = 256 << 10;

/// The connections to one host, each with a conversation of its own.
pub(crate) struct Connections {
    /// The login, which stays to the end.
    pub(crate) login: Session,
    /// The direct connection beside it, over which files go while there is one.
    pub(crate) direct: Option<Session>,
    /// When the host was told last that we are here.
    pub(crate) beaten: Instant,
}

impl Connections {
    /// The connection over which files go.
    pub(crate) fn carrier(&mut self) -> &mut Session {
        self.direct.as_mut().unwrap_or(&mut self.login)
    }

    /// Tells the host that we are here, where the last time is [`beat_interval`] ago.
    pub(crate) fn beat(&mut self) {
        if self.beaten.elapsed() >= beat_interval() {
            self.beaten = Instant::now();
            self.each(|session| session.send(&Request::Alive));
        }
    }

    /// The same, and sends what can be sent now.
    pub(crate) fn beat_and_flush(&mut self) {
        self.beat();
        self.each(Session::flush);
    }

    fn each(&mut self, act: impl FnMut(&mut Session)) {
        let login = std::iter::once(&mut self.login);
        login.chain(&mut self.direct).for_each(act);
    }
}

/// Connections whose host hears from us whatever their owner waits for.
pub(crate) struct SharedConnections(Arc<Mutex<Connections>>);

impl SharedConnections {
    pub(crate) fn new(login: Session) -> SharedConnections {
        let connections = SharedConnections::without_thread(login);
        let weak = Arc::downgrade(&connections.0);
        // one for each host, because sending may read a file too; where no thread can be had, the
        // owner still beats whenever it sends or listens
        let _ = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || while beat(&weak) {});
        connections
    }

    /// As where no thread can be had.
    pub(crate) fn without_thread(login: Session) -> SharedConnections {
        SharedConnections(Arc::new(Mutex::new(Connections {
            login,
            direct: None,
            beaten: Instant::now(),
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connections> {
        self.0.lock()
    }
}

/// Waits, then beats for the owner, unless that is at work with the connections and beats for
/// itself; whether it still has them.
fn beat(connections: &Weak<Mutex<Connections>>) -> bool {
    std::thread::sleep(CHECK_INTERVAL);
    let Some(connections) = connections.upgrade() else {
        return false;
    };
    if let Some(mut connections) = connections.try_lock() {
        connections.beat_and_flush();
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_login_hears_of_the_tool_while_files_go_over_another_connection() {
        let session =
            || Session::over(crate::program::run(Path::new("sh"), &["-c", "exec cat"]).unwrap());
        let connections = SharedConnections::without_thread(session());
        let mut connections = connections.lock();
        connections.direct = Some(session());
        connections.beaten = Instant::now().checked_sub(beat_interval()).unwrap();
        connections.beat();
        assert_ne!(connections.login.pending(), 0);
        assert_ne!(connections.carrier().pending(), 0);
    }
}
