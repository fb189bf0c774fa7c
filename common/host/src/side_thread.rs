//! Threads beside the one that handles signals.

use nix::sys::signal::SigSet;
use std::io::{self, PipeReader, PipeWriter};
use std::thread::JoinHandle;

/// Starts a thread that gets no signals.
pub fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _ = SigSet::all().thread_block();
            run()
        })
}

/// A thread that waits for something until it is dropped.
#[derive(Debug)]
pub struct SideThread {
    /// Its end asks the thread to end.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl SideThread {
    /// `run` gets a pipe to poll, and must return soon after the end of the pipe.
    pub fn begin(
        name: &str,
        run: impl FnOnce(&PipeReader) + Send + 'static,
    ) -> io::Result<SideThread> {
        let (stopped, stop) = io::pipe()?;
        let thread = spawn(name, move || run(&stopped))?;
        Ok(SideThread {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for SideThread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
