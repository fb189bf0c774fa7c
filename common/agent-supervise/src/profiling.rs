//! Records a profile of the job's processes for the launcher, in a thread beside the supervisor.

use super::members;
use agent_stacks::{reader, recorder};
use nix::sys::signal::SigSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wire::stacks::{CountedStacks, RecordStacks};

/// How long to wait at the end of the job for the last sample.
const LAST_SAMPLE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Profiling {
    thread: JoinHandle<Vec<CountedStacks>>,
    goes_on: Arc<AtomicBool>,
}

impl Profiling {
    /// `None` if no thread can be created.
    pub fn begin(wanted: RecordStacks, token: &str) -> Option<Profiling> {
        let goes_on = Arc::new(AtomicBool::new(true));
        let continues = Arc::clone(&goes_on);
        let token = token.to_owned();
        let work = move || {
            // the main thread handles signals
            let _ = SigSet::all().thread_block();
            let find = || members::known(&token, &wanted.pick);
            recorder::record(&wanted, find, || continues.load(Ordering::Relaxed))
        };
        let name = reader::THREAD.to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(work).ok()?;
        Some(Profiling { thread, goes_on })
    }

    pub fn take_if_ended(this: &mut Option<Profiling>) -> Vec<CountedStacks> {
        let ended = this.take_if(|profiling| profiling.thread.is_finished());
        // the thread may have panicked, because another process's memory may contain anything
        ended.map_or_else(Vec::new, |profiling| {
            profiling.thread.join().unwrap_or_default()
        })
    }

    pub fn take_at_end(this: &mut Option<Profiling>) -> Vec<CountedStacks> {
        let until = Instant::now() + LAST_SAMPLE;
        while let Some(profiling) = this
            && !profiling.thread.is_finished()
            && Instant::now() < until
        {
            profiling.goes_on.store(false, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
        Profiling::take_if_ended(this)
    }
}
