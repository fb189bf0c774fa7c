//! Reports that a large file is being read, so that a tool that waits for its checksums knows that
//! this host makes progress.

use agent::output::EventOutput;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::files::{FileEvent, READ_AT_ONCE};

/// For one file: whether the tool still waits, as [`ReadBytes::add`] returns it.
pub fn watch(output: &EventOutput) -> impl Fn(u64) -> bool + Sync {
    let read = ReadBytes::default();
    move |bytes| read.add(bytes, output)
}

/// The bytes that were read of one file.
#[derive(Default)]
pub struct ReadBytes(AtomicU64);

impl ReadBytes {
    /// Returns whether the tool still waits.
    pub fn add(&self, bytes: u64, output: &EventOutput) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        if before / READ_AT_ONCE < (before + bytes) / READ_AT_ONCE {
            output.send(FileEvent::Read);
        }
        !output.is_closed()
    }
}
