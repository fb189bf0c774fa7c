//! Which signals end the processes of a host, and when. It sends nothing and asks no clock.

use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// The time that Python has to print its stacks after ABRT.
pub const STACKS_TIME: Duration = Duration::from_secs(1);
/// A process that KILL does not end within this time hangs in the kernel, usually in a file system
/// that does not answer.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The steps of the end: ABRT if stacks are wanted, TERM, and KILL after the grace time.
#[derive(Clone, Copy, Debug)]
pub struct Termination {
    term_at: Instant,
    /// When KILL is due or was sent: a paused host sends it late, and processes need time to end
    /// after it.
    kill_at: Instant,
    last: Option<Signal>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminationStep {
    /// Send this to all remaining processes.
    Signal(Signal),
    Wait,
    /// No process is left, or the kernel keeps them despite KILL.
    Over,
}

impl Termination {
    pub fn begin(grace: Duration, stacks: bool, now: Instant) -> Termination {
        let term_at = if stacks { now + STACKS_TIME } else { now };
        Termination {
            term_at,
            kill_at: term_at + grace,
            last: None,
        }
    }

    /// Makes TERM due now and KILL after this grace, unless they are due earlier.
    pub fn hurry(&mut self, now: Instant, grace: Duration) {
        self.term_at = self.term_at.min(now);
        self.kill_at = self.kill_at.min(now + grace);
    }

    /// KILL is repeated for processes that were started in the meantime; other signals are not,
    /// because a second TERM may end a process that cleans up after the first.
    pub fn step(&mut self, are_left: bool, now: Instant) -> TerminationStep {
        let was_killed = self.last == Some(Signal::SIGKILL);
        if !are_left || was_killed && now >= self.kill_at + KILL_LIMIT {
            return TerminationStep::Over;
        }
        let signal = if now >= self.kill_at {
            Signal::SIGKILL
        } else if now >= self.term_at {
            Signal::SIGTERM
        } else {
            Signal::SIGABRT
        };
        if signal == Signal::SIGKILL && !was_killed {
            self.kill_at = now;
        }
        let is_new = self.last.replace(signal) != Some(signal);
        if is_new || signal == Signal::SIGKILL {
            TerminationStep::Signal(signal)
        } else {
            TerminationStep::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abrt_then_term_then_kill_until_it_has_had_its_time() {
        const GRACE: Duration = Duration::from_secs(5);
        use Signal::{SIGABRT, SIGKILL, SIGTERM};
        use TerminationStep::{Over, Signal as Send, Wait};
        let table: [(bool, Option<u64>, &[(u64, TerminationStep)]); 5] = [
            (
                false,
                None,
                &[
                    (0, Send(SIGTERM)),
                    (4999, Wait),
                    (5000, Send(SIGKILL)),
                    (5100, Send(SIGKILL)),
                    (14_999, Send(SIGKILL)),
                    (15_000, Over),
                ],
            ),
            (
                true,
                None,
                &[
                    (0, Send(SIGABRT)),
                    (999, Wait),
                    (1000, Send(SIGTERM)),
                    (6000, Send(SIGKILL)),
                ],
            ),
            (false, Some(20), &[(0, Send(SIGTERM)), (20, Send(SIGKILL))]),
            (true, Some(0), &[(0, Send(SIGKILL))]),
            // the host was paused
            (
                false,
                None,
                &[
                    (0, Send(SIGTERM)),
                    (60_000, Send(SIGKILL)),
                    (69_999, Send(SIGKILL)),
                    (70_000, Over),
                ],
            ),
        ];
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        for (stacks, hurry, steps) in table {
            let mut termination = Termination::begin(GRACE, stacks, begun);
            for (ms, step) in steps {
                if hurry.is_some_and(|hurry| hurry <= *ms) {
                    termination.hurry(after(*ms), Duration::ZERO);
                }
                assert_eq!(termination.step(true, after(*ms)), *step, "{stacks} {ms}");
            }
            assert_eq!(termination.step(false, begun), Over);
        }
    }
}
