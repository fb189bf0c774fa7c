//! Signals that concern the job, and the listener that gets them at the moment.

use super::hosts::{Inbox, RunEvent};
use signal_hook::consts::SIGUSR1;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Takes a signal; returns whether it could.
type Listener = Box<dyn Fn(RunEvent) -> bool + Send>;

/// The listener for signals: the current try of the job.
pub struct Signals {
    listener: Arc<Mutex<Option<Listener>>>,
    first: Arc<AtomicUsize>,
}

impl Signals {
    /// From here on, a signal ends nothing by itself.
    pub fn watch() -> io::Result<Signals> {
        let listener: Arc<Mutex<Option<Listener>>> = Arc::default();
        let first: Arc<AtomicUsize> = Arc::default();
        let (own, told) = (Arc::clone(&listener), Arc::clone(&first));
        let mut signals = signal_hook::iterator::Signals::new(
            cli::signal::ending()?.into_iter().chain([SIGUSR1]),
        )?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for number in signals.forever() {
                    if number != SIGUSR1 {
                        let number = usize::try_from(number).unwrap_or_default();
                        let _ =
                            told.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
                    }
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
                    // between two tries nobody listens for a moment; a question about the state
                    // that nobody takes must not keep back the signals behind it
                    while !is_told() && number != SIGUSR1 {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })?;
        Ok(Signals { listener, first })
    }

    /// A shared counter that holds the number of the first signal that ends the job, also one to
    /// which nobody listens; 0 before.
    pub fn stop(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.first)
    }

    /// The first signal that ends the job, if one came.
    pub fn first(&self) -> Option<i32> {
        cli::signal::came(&self.first)
    }

    /// From here on, signals go to this listener.
    pub fn go_to(&self, listener: impl Fn(RunEvent) -> bool + Send + 'static) {
        let mut current = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Box::new(listener));
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

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGTERM;
    use signal_hook::low_level::raise;

    #[test]
    fn a_question_that_nobody_takes_keeps_no_signal_back() {
        let signals = Signals::watch().unwrap();
        raise(SIGUSR1).unwrap();
        raise(SIGTERM).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while signals.first() != Some(SIGTERM) {
            assert!(Instant::now() < until, "SIGTERM was not taken");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
