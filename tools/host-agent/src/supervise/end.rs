//! How the processes of a job are ended: a state machine without a clock and without processes.
//! Events go in, actions come out.

use std::time::{Duration, Instant};

/// Python needs a moment to print its stacks.
const STACKS: Duration = Duration::from_secs(1);
/// How often KILL is repeated, for processes that were started in the meantime.
const KILL_AGAIN: Duration = Duration::from_millis(100);
/// Processes that KILL has not ended by then hang in the kernel, usually in a file system that does
/// not answer.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The processes are to end; ABRT comes first if their stacks are wanted.
    End { grace: Duration, stacks: bool },
    /// The processes are to end at once.
    Kill,
    /// No process is left.
    NoneLeft,
    /// Time has passed.
    Tick,
}

/// A signal for all processes of the job that exist now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Abort,
    Terminate,
    Kill,
}

/// How far the end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not begun.
    Running,
    /// ABRT was sent.
    Stacks { term_at: Instant, grace: Duration },
    /// TERM was sent.
    Terminating { kill_at: Instant },
    /// KILL was sent.
    Killing {
        again_at: Instant,
        give_up_at: Instant,
    },
    /// No process is left, or KILL did not help.
    Ended,
}

impl State {
    /// Whether the end has begun.
    pub fn is_ending(self) -> bool {
        self != State::Running
    }

    /// The next state, and what is to be done.
    pub fn next(self, event: Event, now: Instant) -> (State, Option<Action>) {
        match (self, event) {
            (State::Ended, _) => (State::Ended, None),
            (
                State::Running,
                Event::End {
                    grace,
                    stacks: true,
                },
            ) => (
                State::Stacks {
                    term_at: now + STACKS,
                    grace,
                },
                Some(Action::Abort),
            ),
            (
                State::Running,
                Event::End {
                    grace,
                    stacks: false,
                },
            ) => State::terminate(grace, now),
            (State::Running, Event::NoneLeft | Event::Tick) => (self, None),
            // a second request does not slow down what is under way
            (_, Event::End { .. }) => (self, None),
            (State::Killing { .. }, Event::Kill) => (self, Some(Action::Kill)),
            (_, Event::Kill) => State::kill(now, now + GIVE_UP),
            (_, Event::NoneLeft) => (State::Ended, None),
            (State::Stacks { term_at, grace }, Event::Tick) if now >= term_at => {
                State::terminate(grace, now)
            }
            (State::Terminating { kill_at }, Event::Tick) if now >= kill_at => {
                State::kill(now, now + GIVE_UP)
            }
            (State::Killing { give_up_at, .. }, Event::Tick) if now >= give_up_at => {
                (State::Ended, None)
            }
            (
                State::Killing {
                    again_at,
                    give_up_at,
                },
                Event::Tick,
            ) if now >= again_at => State::kill(now, give_up_at),
            (_, Event::Tick) => (self, None),
        }
    }

    fn terminate(grace: Duration, now: Instant) -> (State, Option<Action>) {
        (
            State::Terminating {
                kill_at: now + grace,
            },
            Some(Action::Terminate),
        )
    }

    fn kill(now: Instant, give_up_at: Instant) -> (State, Option<Action>) {
        (
            State::Killing {
                again_at: now + KILL_AGAIN,
                give_up_at,
            },
            Some(Action::Kill),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const END: Event = Event::End {
        grace: GRACE,
        stacks: false,
    };

    fn run(steps: &[(u64, Event)]) -> (State, Vec<(u64, Action)>) {
        let begun = Instant::now();
        let mut state = State::Running;
        let mut actions = Vec::new();
        for (ms, event) in steps {
            let (next, action) = state.next(*event, begun + Duration::from_millis(*ms));
            state = next;
            actions.extend(action.map(|action| (*ms, action)));
        }
        (state, actions)
    }

    #[test]
    fn term_then_kill_until_none_is_left() {
        use Event::{Kill, NoneLeft, Tick};
        let table: [(&[(u64, Event)], &[(u64, Action)]); 6] = [
            (&[(0, Tick), (1, NoneLeft)], &[]),
            (
                &[(0, END), (100, Tick), (200, NoneLeft), (9000, Tick)],
                &[(0, Action::Terminate)],
            ),
            (
                &[
                    (0, END),
                    (4999, Tick),
                    (5000, Tick),
                    (5050, Tick),
                    (5100, Tick),
                ],
                &[
                    (0, Action::Terminate),
                    (5000, Action::Kill),
                    (5100, Action::Kill),
                ],
            ),
            (
                &[
                    (
                        0,
                        Event::End {
                            grace: GRACE,
                            stacks: true,
                        },
                    ),
                    (999, Tick),
                    (1000, Tick),
                    (6000, Tick),
                ],
                &[
                    (0, Action::Abort),
                    (1000, Action::Terminate),
                    (6000, Action::Kill),
                ],
            ),
            (
                &[(0, END), (10, END), (20, Kill), (30, Kill)],
                &[
                    (0, Action::Terminate),
                    (20, Action::Kill),
                    (30, Action::Kill),
                ],
            ),
            (
                &[(0, Kill), (10, NoneLeft), (20, Kill)],
                &[(0, Action::Kill)],
            ),
        ];
        for (steps, expected) in table {
            assert_eq!(run(steps).1, expected, "{steps:?}");
        }
    }

    #[test]
    fn what_kill_does_not_end_is_given_up() {
        assert!(matches!(
            run(&[(0, Event::Kill), (9999, Event::Tick)]).0,
            State::Killing { .. }
        ));
        assert_eq!(
            run(&[(0, Event::Kill), (9999, Event::Tick), (10_000, Event::Tick)]).0,
            State::Ended
        );
    }
}
