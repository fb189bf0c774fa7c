//! The connections that one conversation with a host has, and the thread that keeps them alive.
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

/// The connections of one conversation.
pub(crate) struct Connections {
    /// What carries the conversation.
    pub(crate) session: Session,
    /// The login, while a direct connection carries it.
    pub(crate) login: Option<Session>,
    /// When the host was told last that we are here.
    pub(crate) beaten: Instant,
}

impl Connections {
    /// Tells the host that we are here, where the last time is [`beat_interval`] ago.
    pub(crate) fn beat(&mut self) {
        if self.beaten.elapsed() >= beat_interval() {
            self.beaten = Instant::now();
            self.session.send(&Request::Alive);
            if let Some(login) = &mut self.login {
                login.send(&Request::Alive);
            }
        }
    }

    /// The same, and sends what can be sent now.
    pub(crate) fn beat_and_flush(&mut self) {
        self.beat();
        self.session.flush();
        if let Some(login) = &mut self.login {
            login.flush();
        }
    }

    /// A direct connection carries the conversation from here on; what did so becomes the login.
    pub(crate) fn go_over_to(&mut self, direct: Session) {
        // the login gets a turn now and then only, and the host waits for its last word
        self.session.flush();
        self.login = Some(std::mem::replace(&mut self.session, direct));
    }

    /// The login carries the conversation again; false where it does so already.
    pub(crate) fn go_back(&mut self) -> bool {
        self.login
            .take()
            .map(|login| self.session = login)
            .is_some()
    }
}

/// Connections whose host hears from us whatever their owner waits for.
pub(crate) struct SharedConnections(Arc<Mutex<Connections>>);

impl SharedConnections {
    pub(crate) fn new(session: Session) -> SharedConnections {
        let connections = SharedConnections::without_thread(session);
        let weak = Arc::downgrade(&connections.0);
        // one for each host, because sending may read a file too; where no thread can be had, the
        // owner still beats whenever it sends or listens
        let _ = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn(move || while beat(&weak) {});
        connections
    }

    /// As where no thread can be had.
    pub(crate) fn without_thread(session: Session) -> SharedConnections {
        SharedConnections(Arc::new(Mutex::new(Connections {
            session,
            login: None,
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
    use wire::files::FileRequest;

    #[test]
    fn the_last_word_over_the_login_is_sent_before_another_connection_takes_over() {
        let session =
            || Session::over(crate::program::run(Path::new("sh"), &["-c", "exec cat"]).unwrap());
        let connections = SharedConnections::without_thread(session());
        let mut connections = connections.lock();
        connections.session.send(&Request::File(FileRequest::Move));
        assert_ne!(connections.session.pending(), 0);
        connections.go_over_to(session());
        assert_eq!(connections.login.as_ref().map(Session::pending), Some(0));
    }
}
