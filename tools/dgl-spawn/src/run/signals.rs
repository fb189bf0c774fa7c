//! Signals that concern the job: they are told to whoever listens at the moment.

use super::hosts::{Inbox, RunEvent};
use signal_hook::consts::SIGUSR1;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Takes a signal; whether it could.
type Listener = Box<dyn Fn(RunEvent) -> bool + Send>;

/// Where signals are told: the try that is on.
pub struct Signals(Arc<Mutex<Option<Listener>>>);

impl Signals {
    /// From here on a signal ends nothing by itself.
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
                    // between two tries for a moment nobody listens
                    while !is_told() {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })?;
        Ok(Signals(listener))
    }

    /// From here on they are told there.
    pub fn go_to(&self, listener: impl Fn(RunEvent) -> bool + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(listener));
    }

    /// From here on they are told among what happens on hosts.
    pub fn go_to_inbox(&self, inbox: Arc<Inbox>) {
        self.go_to(move |event| inbox.signal(event));
    }

    /// A function that tells whether a signal has come since it was asked for.
    pub fn has_come(&self) -> impl Fn() -> bool + use<> {
        let (sender, receiver) = channel();
        self.go_to(move |event| sender.send(event).is_ok());
        move || matches!(receiver.try_recv(), Ok(RunEvent::Signal(_)))
    }

    /// One that comes within this time.
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
