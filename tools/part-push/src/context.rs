//! The settings that all hosts of a push share.

use crate::args::Args;
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

/// The settings of a push.
pub struct PushContext<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The connector to hosts.
    pub remote: Remote,
    /// The options of sending content.
    pub wire: WireOptions,
    /// The rate limit that all hosts share.
    pub limit: Option<Arc<RateLimit>>,
    /// The number of a signal that ends everything.
    pub stop: Arc<AtomicUsize>,
    /// The directory below which all files go.
    pub base: &'a Path,
    /// The name of this push.
    pub run: String,
}

impl PushContext<'_> {
    /// Whether a signal ends everything.
    pub fn is_stopped(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that ends everything, if one came.
    pub fn signal(&self) -> Option<SignalNumber> {
        cli::signal::received(&self.stop)
    }

    /// Waits for `time`, or until a signal ends everything.
    pub fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopped() && Instant::now() < until {
            std::thread::sleep(SIGNAL_CHECKED.min(time));
        }
    }

    /// The first request to a host.
    pub fn receive(&self, host: &Host) -> Receive {
        let (dry, fsync) = (self.args.copy.dry_run, self.args.fsync);
        Receive {
            base: self.base.into(),
            run: self.run.clone(),
            host: host.id,
            dry,
            fsync,
            direct: false,
        }
    }
}
