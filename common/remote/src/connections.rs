//! The connections that one conversation with a host has, and the thread that keeps all of them
//! alive.
//!
//! A host that hears nothing takes us for gone and puts away what is half done. The threads that
//! send files wait for disks: for minutes, where memory is short or a file server does not answer.
//! So it is not they who tell the hosts that we are here.

use crate::{Session, lock};
use std::sync::{Arc, Mutex, MutexGuard, Once, Weak};
use std::time::{Duration, Instant};
use transfer::BEAT;
use wire::Request;

/// All hosts are looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// All connections that the thread beats for.
static BEATING: Mutex<Vec<Weak<Mutex<Connections>>>> = Mutex::new(Vec::new());

static THREAD: Once = Once::new();

/// The connections of one conversation.
pub(crate) struct Connections {
    /// What carries the conversation.
    pub(crate) session: Session,
    /// The login, while a direct connection carries it.
    pub(crate) login: Option<Session>,
    /// When the host was told last that we are here.
    beaten: Instant,
}

impl Connections {
    /// Tells the host that we are here, where the last time is [`BEAT`] ago.
    pub(crate) fn beat(&mut self) {
        if self.beaten.elapsed() >= BEAT {
            self.beaten = Instant::now();
            self.session.send(&Request::Alive);
            if let Some(login) = &mut self.login {
                login.send(&Request::Alive);
            }
        }
    }

    /// Sends what can be sent now.
    pub(crate) fn flush(&mut self) {
        self.session.flush();
        if let Some(login) = &mut self.login {
            login.flush();
        }
    }

    /// A direct connection carries the conversation from here on; what did so becomes the login.
    pub(crate) fn go_over_to(&mut self, direct: Session) {
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
        let connections = Arc::new(Mutex::new(Connections {
            session,
            login: None,
            beaten: Instant::now(),
        }));
        lock(&BEATING).push(Arc::downgrade(&connections));
        THREAD.call_once(|| {
            std::thread::spawn(|| {
                loop {
                    std::thread::sleep(LOOK);
                    beat_all();
                }
            });
        });
        SharedConnections(connections)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Connections> {
        lock(&self.0)
    }
}

/// Owners that are at work with their connections beat for themselves and are not waited for.
fn beat_all() {
    let all: Vec<_> = {
        let mut all = lock(&BEATING);
        all.retain(|connections| connections.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    for connections in all {
        if let Ok(mut connections) = connections.try_lock() {
            connections.beat();
            connections.flush();
        }
    }
}
