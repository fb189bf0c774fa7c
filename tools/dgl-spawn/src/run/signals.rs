//! Signals that concern the job, and the listener that gets them at the moment.

use super::hosts::{Inbox, RunEvent};
use signal_hook::consts::SIGUSR1;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Takes a signal; returns whether it could.
type Listener = Box<dyn Fn(RunEvent) -> bool + Send>;

/// The listener for signals: the current try of the job.
pub struct Signals(Arc<Mutex<Option<Listener>>>);

impl Signals {
    /// From here on, a signal ends nothing by itself.
    pub fn watch() -> io::Result<Signals> {
        let listener: Arc<Mutex<Option<Listener>>> = Arc::default();
        let own = Arc::clone(&listener);
        let mut signals = signal_hook::iterator::Signals::new(
            cli::signal::ending()?.into_iter().chain([SIGUSR1]),
        )?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for number in signals.forever() {
                    let event = || {
                        if number == SIGUSR1 {
                            RunEvent::StatusAsked
                        } else {
                            RunEvent::Signal(number)
                        }
                    };
                    let is_told = || {
                        own.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .as_ref()
                            .is_some_and(|tell| tell(event()))
                    };
                    // between two tries nobody listens for a moment
                    while !is_told() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })?;
        Ok(Signals(listener))
    }

    /// From here on, signals go to this listener.
    pub fn go_to(&self, listener: impl Fn(RunEvent) -> bool + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
    }

    /// From here on, signals go to the inbox of the events of hosts.
    pub fn go_to_inbox(&self, inbox: Arc<Inbox>) {
        self.go_to(move |event| inbox.signal(event));
    }

    /// A function that tells whether a signal has come since this call.
    pub fn has_come(&self) -> impl Fn() -> bool + use<> {
        let (sender, receiver) = channel();
        self.go_to(move |event| sender.send(event).is_ok());
        move || matches!(receiver.try_recv(), Ok(RunEvent::Signal(_)))
    }

    /// The signal that comes within this time; `None` if none does.
    pub fn within(&self, time: Duration) -> Option<i32> {
        let (sender, receiver) = channel();
        self.go_to(move |event| sender.send(event).is_ok());
        let until = Instant::now() + time;
        loop {
            match receiver.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(RunEvent::Signal(number)) => return Some(number),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}
