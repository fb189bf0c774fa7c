//! Signals that ask a tool to end.

use record::error::Fault;
use record::exit::SignalNumber;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Ctrl-C, kill and a terminal that closes end a job. A signal that was ignored when the tool
/// started (nohup) stays ignored.
pub fn ending() -> io::Result<Vec<i32>> {
    let ignored = ignored_at_start()?;
    Ok([SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| ignored & (1 << (signal - 1)) == 0)
        .collect())
}

/// Signals within this time of the first are the same request: both the shell and the kernel
/// announce a terminal that closes, and wrappers pass on a Ctrl-C that a process already had.
const ONE_REQUEST: Duration = Duration::from_millis(200);

/// The number of the signal that asked for the end, or 0. The first request ends a tool in order, a
/// second one at once.
pub fn stop() -> Result<Arc<AtomicUsize>, Fault> {
    register_stop().map_err(|error| {
        Fault::unreachable("signals", error.to_string())
            .fix("raise the limit on the processes of this user: ulimit -u")
    })
}

pub fn received(stop: &AtomicUsize) -> Option<SignalNumber> {
    i32::try_from(stop.load(Ordering::Relaxed))
        .ok()
        .filter(|number| *number != 0)
        .map(SignalNumber)
}

fn register_stop() -> io::Result<Arc<AtomicUsize>> {
    let stop = Arc::new(AtomicUsize::new(0));
    let signals = ending()?;
    for signal in &signals {
        let number = usize::try_from(*signal).unwrap_or_default();
        flag::register_usize(*signal, stop.clone(), number)?;
    }
    let mut arriving = Signals::new(signals)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut first = None;
            for signal in arriving.forever() {
                let first = *first.get_or_insert_with(Instant::now);
                if first.elapsed() >= ONE_REQUEST {
                    signal_hook::low_level::exit(128 + signal);
                }
            }
        })?;
    Ok(stop)
}

/// Bit n-1 stands for signal n (`SigIgn` of proc(5)).
fn ignored_at_start() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap_or("0");
    u64::from_str_radix(mask.trim(), 16).map_err(io::Error::other)
}
