//! Records where the processes of the job are, because the launcher asked for it. A thread looks,
//! while the supervisor goes on.

use crate::job_processes;
use crate::stacks::{reader, recorder};
use nix::sys::signal::SigSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::stacks::{CountedStacks, RecordStacks};

/// How long to wait at the end of the job for a look that is being taken. There is nobody to be
/// read any more.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// A recording that has begun.
#[derive(Debug)]
pub struct Profiling {
    thread: JoinHandle<Vec<CountedStacks>>,
    goes_on: Arc<AtomicBool>,
}

impl Profiling {
    /// Begins to record the processes of the job with this token; `None` where there can be no more
    /// threads.
    pub fn begin(wanted: RecordStacks, token: &str) -> Option<Profiling> {
        let goes_on = Arc::new(AtomicBool::new(true));
        let continues = Arc::clone(&goes_on);
        let token = token.to_owned();
        let work = move || {
            // signals are for the thread that deals with them
            let _ = SigSet::all().thread_block();
            let find = || {
                let mut found = job_processes::selected(&wanted.pick);
                found.retain(|one| one.member.token == token);
                found
            };
            recorder::record(&wanted, find, || continues.load(Ordering::Relaxed))
        };
        let name = reader::THREAD.to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(work).ok()?;
        Some(Profiling { thread, goes_on })
    }

    /// The profiles, once the recording has ended.
    pub fn take_if_ended(this: &mut Option<Profiling>) -> Vec<CountedStacks> {
        let ended = this.take_if(|one| one.thread.is_finished());
        // a panic in it: the memory of another process may hold anything
        ended.map_or_else(Vec::new, |one| one.thread.join().unwrap_or_default())
    }

    /// The profiles until now, because the job has ended.
    pub fn take_at_end(this: &mut Option<Profiling>) -> Vec<CountedStacks> {
        let until = Instant::now() + LAST_LOOK;
        while let Some(one) = this
            && !one.thread.is_finished()
            && Instant::now() < until
        {
            one.goes_on.store(false, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
        Profiling::take_if_ended(this)
    }
}
