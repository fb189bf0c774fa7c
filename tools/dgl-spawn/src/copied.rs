//! The check that files were copied before a job starts: planned files reach the hosts only by
//! part-push.

use record::error::{Fault, Report};
use record::jsonl::Stream;
use record::{FileCopy, Pushed};

/// Refuses a stream whose files were planned but not copied.
pub fn check(stream: &Stream) -> Result<(), Report> {
    if !stream.has::<FileCopy>() || stream.has::<Pushed>() {
        return Ok(());
    }
    let fault = Fault::data(
        "stdin",
        "the files in the stream were never copied: there are file records and no pushed records",
    );
    Err(fault
        .fix(
            "put part-push into the pipeline, or use --no-push-check if the files are there \
             already",
        )
        .report())
}
