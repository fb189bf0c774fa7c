//! Checks that files were copied before a job starts: only part-push brings planned files to the
//! hosts.

use record::error::{Fault, Report};
use record::jsonl::Stream;
use record::{FileCopy, Pushed};

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
            "put part-push into the pipeline, or use --no-push-check if the hosts already have \
             the files",
        )
        .report())
}
