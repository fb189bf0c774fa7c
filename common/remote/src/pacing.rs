//! Logs in to many hosts, as many at once as this machine can handle.
//!
//! A login costs both sides a key exchange and a shell. On a busy machine (120 sshds and two busy
//! loops on 2 cores), 16 logins at once took 8 s each, and some 27 s; a single one took 0.3 s. So
//! after a slow login, fewer run at once. A login that timed out while others were slow is tried
//! again after all others; if they were quick, the host itself is the cause. A login that sshd
//! dropped, as it does at random beyond MaxStartups, is tried again after a pause.

use super::HostFault;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// More would only wait for this machine's cores, and the sshd of a bastion drops them (MaxStartups
/// 10:30:100).
const MOST_AT_ONCE: usize = 16;
/// How many timeouts show that a host is not merely slow.
const MOST_TRIES: u32 = 5;

#[derive(Clone, Debug)]
struct Pace {
    allowed: usize,
    /// How long a login may take.
    limit: Duration,
    /// The longest time of a successful login.
    slowest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginEnd {
    Open,
    TimedOut,
    /// More time would not help.
    Failed,
}

impl Pace {
    fn new(limit: Duration) -> Pace {
        Pace {
            allowed: MOST_AT_ONCE,
            limit,
            slowest: Duration::ZERO,
        }
    }

    /// Returns whether to try the login again.
    fn learn(&mut self, end: LoginEnd, took: Duration, tries: u32) -> bool {
        let fewer = (self.allowed / 2).max(1);
        match end {
            LoginEnd::Open => {
                self.slowest = self.slowest.max(took);
                let is_slow = took > self.limit / 2;
                let more = (self.allowed + 1).min(MOST_AT_ONCE);
                self.allowed = if is_slow { fewer } else { more };
                false
            }
            LoginEnd::TimedOut if self.slowest > self.limit / 4 && tries < MOST_TRIES => {
                self.allowed = fewer;
                true
            }
            LoginEnd::TimedOut | LoginEnd::Failed => false,
        }
    }
}

struct PacingState<T> {
    /// Positions, and the number of the try.
    waiting: VecDeque<(usize, u32)>,
    under_way: usize,
    pace: Pace,
    /// By position.
    results: Vec<Option<Result<T, HostFault>>>,
}

/// Opens each of `count` hosts by its position; `limit` is the time for a login.
pub fn open_each<T: Send>(
    count: usize,
    limit: Duration,
    is_stopped: impl Fn() -> bool + Sync,
    open: impl Fn(usize) -> Result<T, HostFault> + Sync,
) -> Vec<Result<T, HostFault>> {
    let state = PacingState {
        waiting: (0..count).map(|host_index| (host_index, 1)).collect(),
        under_way: 0,
        pace: Pace::new(limit),
        results: (0..count).map(|_| None).collect(),
    };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let open = |host_index| open_again(host_index, limit, &is_stopped, &open);
    std::thread::scope(|scope| {
        for _ in 1..count.min(MOST_AT_ONCE) {
            // if no thread can be created, the others continue
            let _ = std::thread::Builder::new()
                .spawn_scoped(scope, || work(&state, &changed, &is_stopped, &open));
        }
        work(&state, &changed, &is_stopped, &open);
    });
    let results = state.into_inner().results.into_iter();
    results
        .map(|result| result.unwrap_or_else(|| Err(HostFault::stopped())))
        .collect()
}

/// Logs in to hosts while one waits or a running login may have to be repeated.
fn work<T: Send>(
    state: &Mutex<PacingState<T>>,
    changed: &Condvar,
    is_stopped: &impl Fn() -> bool,
    open: &(impl Fn(usize) -> Result<T, HostFault> + Sync),
) {
    while let Some((host_index, tries)) = next(state, changed, is_stopped) {
        let began = Instant::now();
        let result = open(host_index);
        let end = match &result {
            Ok(_) => LoginEnd::Open,
            Err(fault) if fault.timed_out => LoginEnd::TimedOut,
            Err(_) => LoginEnd::Failed,
        };
        let mut state = state.lock();
        state.under_way -= 1;
        if state.pace.learn(end, began.elapsed(), tries) {
            state.waiting.push_back((host_index, tries + 1));
        } else {
            state.results[host_index] = Some(result);
        }
        changed.notify_all();
    }
}

/// Tries again if sshd drops the login.
fn open_again<T>(
    host_index: usize,
    limit: Duration,
    is_stopped: &impl Fn() -> bool,
    open: &impl Fn(usize) -> Result<T, HostFault>,
) -> Result<T, HostFault> {
    let until = Instant::now() + limit;
    let mut pause = Duration::from_millis(150);
    loop {
        match open(host_index) {
            Err(fault) if fault.again && !is_stopped() && Instant::now() + pause < until => {
                // hosts wait for different times, or they would collide again
                std::thread::sleep(pause + Duration::from_millis(host_index as u64 % 32 * 17));
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            other => return other,
        }
    }
}

fn next<T>(
    state: &Mutex<PacingState<T>>,
    changed: &Condvar,
    is_stopped: impl Fn() -> bool,
) -> Option<(usize, u32)> {
    let mut state = state.lock();
    loop {
        // the end of a running login, which is near then, wakes this thread
        if is_stopped() || (state.waiting.is_empty() && state.under_way == 0) {
            return None;
        }
        if state.under_way < state.pace.allowed
            && let Some(next) = state.waiting.pop_front()
        {
            state.under_way += 1;
            return Some(next);
        }
        changed.wait(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_host_is_tried_again_only_where_others_are_slow_too() {
        let quick = Duration::from_millis(300);
        let slow = Duration::from_secs(6);
        // the earlier results; the number of tries; whether to try again, and how many run at once
        // then
        let table: [(&[(LoginEnd, Duration)], u32, bool, usize); 5] = [
            (&[], 1, false, 16),
            (&[(LoginEnd::Open, quick)], 1, false, 16),
            (&[(LoginEnd::Open, slow)], 1, true, 4),
            (
                &[(LoginEnd::Open, slow), (LoginEnd::Open, quick)],
                2,
                true,
                4,
            ),
            (&[(LoginEnd::Open, slow)], MOST_TRIES, false, 8),
        ];
        for (before, tries, again, allowed) in table {
            let mut pace = Pace::new(LIMIT);
            for (ended, took) in before {
                pace.learn(*ended, *took, 1);
            }
            assert_eq!(
                (pace.learn(LoginEnd::TimedOut, LIMIT, tries), pace.allowed),
                (again, allowed),
                "{before:?}"
            );
        }
        assert!(!Pace::new(LIMIT).learn(LoginEnd::Failed, quick, 1));
    }

    #[test]
    fn each_host_has_its_own_result_and_one_that_is_slow_comes_back() {
        let limit = Duration::from_millis(600);
        let (tries, drops) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let results = open_each(
            40,
            limit,
            || false,
            |host_index| match host_index {
                7 => Err(HostFault::unreachable("refused")),
                // its sshd drops the first
                8 if drops.fetch_add(1, Ordering::SeqCst) < 1 => Err(HostFault {
                    again: true,
                    ..HostFault::unreachable("dropped")
                }),
                // others are slow, so it is tried until it succeeds
                39 if tries.fetch_add(1, Ordering::SeqCst) < 2 => Err(HostFault {
                    timed_out: true,
                    ..HostFault::unreachable("no answer")
                }),
                _ => {
                    std::thread::sleep(limit / 3);
                    Ok(host_index)
                }
            },
        );
        for (host_index, result) in results.iter().enumerate() {
            assert_eq!(
                result.as_ref().ok(),
                (host_index != 7).then_some(&host_index),
                "{result:?}"
            );
        }
        assert_eq!(tries.load(Ordering::SeqCst), 3);
        assert!(open_each(0, limit, || false, |_| Ok(())).is_empty());
    }

    #[test]
    fn no_login_begins_after_it_was_stopped() {
        let stop = AtomicUsize::new(0);
        let tried = AtomicUsize::new(0);
        let is_stopped = || stop.load(Ordering::SeqCst) != 0;
        let results = open_each(500, LIMIT, is_stopped, |host_index| {
            tried.fetch_add(1, Ordering::SeqCst);
            stop.store(2, Ordering::SeqCst);
            Ok(host_index)
        });
        let tried = tried.load(Ordering::SeqCst);
        assert!((1..=MOST_AT_ONCE).contains(&tried), "{tried}");
        assert_eq!(results.len(), 500);
        assert_eq!(
            results.iter().filter(|result| result.is_ok()).count(),
            tried
        );
    }
}
