//! The end of processes on a host, in steps. It signals nothing itself and asks no clock.

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// Python needs a moment to print its stacks.
const STACKS: Duration = Duration::from_secs(1);
/// A process that the first KILL does not end within this time hangs in the kernel, usually in a
/// file system that does not answer.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The end of processes: ABRT if their stacks are wanted, then TERM, and after the grace KILL.
#[derive(Clone, Copy, Debug)]
pub struct Termination {
    term_at: Instant,
    kill_at: Instant,
    last: Option<Signal>,
    /// When KILL was sent first. A host that was paused sends it late, and it needs its time then
    /// too.
    killed: Option<Instant>,
}

impl Termination {
    /// Begins now.
    pub fn begin(grace: Duration, stacks: bool, now: Instant) -> Termination {
        let term_at = if stacks { now + STACKS } else { now };
        Termination {
            term_at,
            kill_at: term_at + grace,
            last: None,
            killed: None,
        }
    }

    /// Does not wait for the rest of the grace.
    pub fn hurry(&mut self, now: Instant) {
        self.term_at = self.term_at.min(now);
        self.kill_at = self.kill_at.min(now);
    }

    /// The signal that all processes get now. KILL is repeated for those that were started in the
    /// meantime; the others are not, because a second TERM may end what cleans up after the first.
    pub fn signal(&mut self, now: Instant) -> Option<Signal> {
        let signal = match () {
            () if now >= self.kill_at => Signal::SIGKILL,
            () if now >= self.term_at => Signal::SIGTERM,
            () => Signal::SIGABRT,
        };
        if signal == Signal::SIGKILL {
            self.killed.get_or_insert(now);
        }
        let is_new = self.last.replace(signal) != Some(signal);
        (is_new || signal == Signal::SIGKILL).then_some(signal)
    }

    /// Whether KILL has not helped, so that what is left is left to the kernel.
    pub fn is_given_up(&self, now: Instant) -> bool {
        self.killed.is_some_and(|killed| now >= killed + KILL_LIMIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abrt_then_term_then_kill_until_it_is_given_up() {
        const GRACE: Duration = Duration::from_secs(5);
        use Signal::{SIGABRT, SIGKILL, SIGTERM};
        type TerminationStep = (u64, Option<Signal>);
        let table: [(bool, Option<u64>, &[TerminationStep]); 4] = [
            (
                false,
                None,
                &[
                    (0, Some(SIGTERM)),
                    (4999, None),
                    (5000, Some(SIGKILL)),
                    (5100, Some(SIGKILL)),
                ],
            ),
            (
                true,
                None,
                &[
                    (0, Some(SIGABRT)),
                    (999, None),
                    (1000, Some(SIGTERM)),
                    (6000, Some(SIGKILL)),
                ],
            ),
            (false, Some(20), &[(0, Some(SIGTERM)), (20, Some(SIGKILL))]),
            (true, Some(0), &[(0, Some(SIGKILL))]),
        ];
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        for (stacks, hurry, steps) in table {
            let mut termination = Termination::begin(GRACE, stacks, begun);
            for (ms, signal) in steps {
                if hurry.is_some_and(|hurry| hurry <= *ms) {
                    termination.hurry(after(*ms));
                }
                assert_eq!(termination.signal(after(*ms)), *signal, "{stacks} {ms}");
            }
        }
        let mut termination = Termination::begin(GRACE, false, begun);
        // the host was paused
        assert!(!termination.is_given_up(after(60_000)));
        termination.signal(after(60_000));
        assert!(!termination.is_given_up(after(69_999)) && termination.is_given_up(after(70_000)));
    }
}
