//! Reports all results: records, progress, faults.

use crate::plan::Delivery;
use cli::copy;
use parking_lot::Mutex;
use record::error::Fault;
use record::term::millis;
use record::{Host, Pushed};
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Default)]
pub struct Outcome {
    /// Why the file is not there, if it is not.
    pub error: Option<String>,
    pub fix: Option<&'static str>,
    /// Whether the file needed no sending.
    pub skipped: bool,
    /// Over the wire.
    pub sent_bytes: u64,
    /// From the beginning of its sending to the host's confirmation.
    pub elapsed: Duration,
}

pub struct Reporter {
    /// The part of reporting that part-pull has too.
    pub copy: copy::CopyReporter,
    /// The hosts and files of failed deliveries.
    pub failed: Mutex<BTreeSet<(u32, u32)>>,
}

impl Reporter {
    /// Whether a host did not get a file.
    pub fn has_failed(&self, host: u32, file: u32) -> bool {
        self.failed.lock().contains(&(host, file))
    }

    pub fn record(&self, delivery: &Delivery, outcome: &Outcome) {
        if outcome.error.is_some() {
            self.failed.lock().insert((delivery.host, delivery.file));
        }
        self.copy.record(&Pushed {
            id: delivery.id,
            of: self.copy.of,
            file: delivery.file,
            host: delivery.host,
            ok: outcome.error.is_none(),
            bytes: delivery.bytes,
            sent_bytes: outcome.sent_bytes,
            skipped: outcome.skipped,
            elapsed_ms: millis(outcome.elapsed),
            error: outcome.error.clone(),
        });
    }

    pub fn report(&self, host: &Host, delivery: &Delivery, outcome: Outcome) {
        self.record(delivery, &outcome);
        if outcome.error.is_none() {
            self.copy.show.file(host, delivery.bytes, outcome.skipped);
        }
        if let Some(why) = outcome.error {
            let location = format!("{}: {}", host.location(), delivery.dst.display());
            let fault = Fault::item(location, why);
            self.copy.fault(match outcome.fix {
                Some(fix) => fault.fix(fix),
                None => fault,
            });
        }
    }
}
