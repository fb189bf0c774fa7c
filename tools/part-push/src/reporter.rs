//! Where all that is done is told: records, progress, faults.

use crate::fates::{Fate, Fates};
use crate::plan::Delivery;
use crate::push::{Outcome, Watch};
use cli::progress::ProgressDisplay;
use record::error::Fault;
use record::jsonl::{self, Out};
use record::term::millis;
use record::{Host, Pushed};
use std::sync::{Mutex, PoisonError};

/// Where all that is done is told.
pub struct Reporter {
    /// Records.
    pub out: Mutex<Out>,
    /// People read stdout.
    pub human: bool,
    /// How many deliveries there are.
    pub of: u32,
    /// What people see.
    pub show: ProgressDisplay,
    /// What could not be delivered.
    pub failed: Mutex<Vec<Fault>>,
}

impl Reporter {
    /// The record of a delivery.
    pub fn record(&self, delivery: &Delivery, skipped: bool, outcome: &Outcome) {
        if self.human {
            return;
        }
        let line = jsonl::line(&Pushed {
            id: delivery.id,
            of: self.of,
            file: delivery.file,
            host: delivery.host,
            ok: outcome.error.is_none(),
            bytes: delivery.bytes,
            sent_bytes: outcome.sent_bytes,
            skipped: skipped && outcome.error.is_none(),
            elapsed_ms: millis(outcome.elapsed),
            error: outcome.error.clone(),
        });
        self.out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(&line);
    }

    /// The last word about a delivery.
    pub fn tell(&self, host: &Host, delivery: &Delivery, skipped: bool, outcome: Outcome) {
        self.record(delivery, skipped, &outcome);
        if outcome.error.is_none() {
            self.show.file(host, delivery.bytes, skipped);
        }
        if let Some(why) = outcome.error {
            let place = format!("{}: {}", host.place(), delivery.dst.display());
            self.failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(Fault::item(place, why));
        }
    }
}

/// The board, for one host.
pub struct HostReporter<'a> {
    /// The host.
    pub host: &'a Host,
    /// What becomes of its deliveries.
    pub fates: &'a Fates,
    /// Where it is told.
    pub board: &'a Reporter,
}

impl Watch for HostReporter<'_> {
    fn moved(&self, bytes: u64) {
        self.board.show.moved(self.host, bytes);
    }

    fn done(&self, delivery: &Delivery, outcome: Outcome) {
        self.fates.set(delivery, Fate::Told);
        self.board.tell(self.host, delivery, false, outcome);
    }
}
