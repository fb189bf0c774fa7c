//! Puts signals into the inbox of the job.

use super::events::{Inbox, RunEvent};
use record::exit::SignalNumber;
use signal_hook::consts::SIGUSR1;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub struct Signals {
    inbox: Arc<Inbox>,
    first: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes over the signals, which then no longer end this program.
    pub fn watch() -> io::Result<Signals> {
        let (inbox, first) = (Arc::<Inbox>::default(), Arc::<AtomicUsize>::default());
        let signals = Signals {
            inbox: Arc::clone(&inbox),
            first: Arc::clone(&first),
        };
        let numbers = session::signal::ending()?.into_iter().chain([SIGUSR1]);
        let mut arriving = signal_hook::iterator::Signals::new(numbers)?;
        let take = move || {
            for number in arriving.forever() {
                if number == SIGUSR1 {
                    inbox.push_first(RunEvent::StatusAsked);
                    continue;
                }
                let ending = usize::try_from(number).unwrap_or_default();
                let _ = first.compare_exchange(0, ending, Ordering::Relaxed, Ordering::Relaxed);
                inbox.push_first(RunEvent::Signal(SignalNumber(number)));
            }
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(take)?;
        Ok(signals)
    }

    /// Holds the number of the first signal that ends the job; 0 before.
    pub fn stop(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.first)
    }

    pub fn first(&self) -> Option<SignalNumber> {
        session::signal::received(&self.first)
    }

    pub fn inbox(&self) -> Arc<Inbox> {
        Arc::clone(&self.inbox)
    }

    /// A function that returns whether a signal has arrived since this call, for use after the
    /// job's end.
    pub fn since_now(&self) -> impl Fn() -> bool + use<> {
        let inbox = self.inbox();
        inbox.forget_signals();
        move || matches!(inbox.next(Duration::ZERO), Some(RunEvent::Signal(_)))
    }

    /// The first signal within this time; drops events of hosts.
    pub fn within(&self, time: Duration) -> Option<SignalNumber> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.inbox.next(left) {
                Some(RunEvent::Signal(signal)) => return Some(signal),
                None if left.is_zero() => return None,
                _ => {}
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
        while signals.first() != Some(SignalNumber::TERM) {
            assert!(Instant::now() < until, "SIGTERM was not taken");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
