//! The settings that all hosts of a push share.

use crate::args::Args;
use crate::connection::Comparison;
use record::Host;
use record::exit::SignalNumber;
use remote::Remote;
use remote::direct::WireOptions;
use remote::limit::RateLimit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};
use wire::files::Receive;

/// How soon a pause ends after a signal.
const SIGNAL_CHECKED: Duration = Duration::from_millis(50);

pub struct PushContext<'a> {
    pub args: &'a Args,
    pub remote: Remote,
    pub wire: WireOptions,
    /// Shared by all hosts.
    pub limit: Option<Arc<RateLimit>>,
    /// The number of a signal that ends everything.
    pub stop: Arc<AtomicUsize>,
    /// All files go below it.
    pub base: &'a Path,
    /// Whether nothing is written on any host.
    pub is_dry: bool,
    /// The name of this push.
    pub run: String,
}

impl PushContext<'_> {
    pub fn is_stopped(&self) -> bool {
        self.signal().is_some()
    }

    pub fn signal(&self) -> Option<SignalNumber> {
        cli::signal::received(&self.stop)
    }

    /// Waits for `time`, or until a signal arrives.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopped() && Instant::now() < until {
            std::thread::sleep(SIGNAL_CHECKED.min(time));
        }
    }

    pub fn comparison(&self) -> Comparison {
        if self.args.copy.dry_run {
            Comparison::Never
        } else if self.args.verify {
            Comparison::All
        } else {
            Comparison::WhereUncertain
        }
    }

    pub fn receive(&self, host: &Host) -> Receive {
        Receive {
            base: self.base.into(),
            run: self.run.clone(),
            host: host.id,
            dry: self.is_dry,
            fsync: self.args.fsync,
            direct: false,
        }
    }
}
