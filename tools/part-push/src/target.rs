//! A host that receives files: examined, served, given up.

use crate::connection::PushConnection;
use crate::context::PushContext;
use crate::plan::{self, Delivery, DeliverySource};
use crate::push;
use crate::reporter::{Outcome, Reporter};
use parking_lot::{Mutex, MutexGuard};
use record::Host;
use remote::HostFault;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use transfer::fates::{Fate, Fates};
use wire::files::PublicKey;

/// The first pause before a host is asked again; each is twice as long as the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub struct Target<'a> {
    pub host: &'a Host,
    pub deliveries: Vec<&'a Delivery>,
    pub fates: Fates,
    /// When the first delivery was sent.
    pub begun: OnceLock<Instant>,
    pub state: Mutex<TargetState>,
}

#[derive(Default)]
pub struct TargetState {
    /// `None` if the host could not be reached or was given up, as `broken` explains.
    pub connection: Option<PushConnection>,
    /// Why the host was given up.
    pub broken: Option<HostFault>,
    /// All deliveries have their results, so a break does no harm.
    pub complete: bool,
    /// Whether the break was reported.
    pub reported: bool,
    /// The first of the hosts that share its workspace.
    pub leader: Option<u32>,
}

fn unsent(error: Option<String>) -> Outcome {
    Outcome {
        skipped: error.is_none(),
        error,
        ..Outcome::default()
    }
}

impl<'a> Target<'a> {
    pub fn lock(&self) -> MutexGuard<'_, TargetState> {
        self.state.lock()
    }

    /// Acts on the host unless it was given up; gives it up if its connection breaks.
    pub fn on_connection<T>(
        &self,
        act: impl FnOnce(&mut PushConnection) -> Result<T, HostFault>,
    ) -> Option<T> {
        let mut state = self.lock();
        match act(state.connection.as_mut()?) {
            Ok(value) => Some(value),
            Err(broken) => {
                (state.connection, state.broken) = (None, Some(broken));
                None
            }
        }
    }

    /// Reports the result of a delivery, unless it has one.
    pub fn done(&self, delivery: &Delivery, outcome: Outcome, reporter: &Reporter) {
        if self.fates.report(delivery) {
            reporter.report(self.host, delivery, outcome);
        }
    }

    /// The deliveries that it lacks and no other host provides.
    pub fn lacking(&self) -> Vec<&'a Delivery> {
        if self.lock().connection.is_none() {
            return Vec::new();
        }
        self.undelivered()
    }

    fn undelivered(&self) -> Vec<&'a Delivery> {
        self.fates
            .with(&Fate::Lacks, self.deliveries.iter().copied())
    }

    /// The user's jobs on the host that may load files which this push replaces.
    pub fn jobs_of_replaced(&self) -> BTreeSet<String> {
        let shared = self.fates.shared(&self.deliveries).into_iter();
        let sent = shared.map(|(delivery, _)| delivery).chain(self.lacking());
        let jobs = self.on_connection(|connection| {
            let replaced = sent.filter(|delivery| connection.is_occupied(delivery));
            let folders: BTreeSet<&Path> = replaced
                .filter_map(|delivery| delivery.dst.parent())
                .collect();
            connection.jobs(&Vec::from_iter(folders))
        });
        jobs.unwrap_or_default()
    }

    pub fn inspect(&self, context: &PushContext<'_>) {
        if self.deliveries.is_empty() {
            return;
        }
        let dry = context.args.copy.dry_run;
        let inspect = |connection: &mut PushConnection| {
            // only this push puts files there, and 10,000 names cost a host a tenth of a second
            let needless = |delivery: &Delivery| {
                connection.ready.empty && delivery.source != DeliverySource::MustExist
            };
            let asked: Vec<&Delivery> = self
                .deliveries
                .iter()
                .filter(|delivery| !needless(delivery))
                .copied()
                .collect();
            let same = connection.find_present(&asked)?;
            let present = asked.into_iter().zip(same).filter(|(_, same)| *same);
            present.for_each(|(delivery, _)| self.fates.set(delivery, Fate::Present));
            for delivery in &self.deliveries {
                if let Some(why) = connection.in_the_way.remove(&delivery.id) {
                    self.fates.set(*delivery, Fate::Refused(why));
                }
            }
            Ok(())
        };
        if self.on_connection(inspect).is_none() || dry {
            return;
        }
        let lacking = self.lacking();
        self.on_connection(|connection| {
            let unclaimed = |delivery: &&Delivery| {
                plan::comes_in_parts(delivery) && !connection.is_claimed(delivery)
            };
            let alone: Vec<&Delivery> = lacking.into_iter().filter(unclaimed).collect();
            connection.claim(&alone)
        });
    }

    /// Chooses the connection for content, if any. Agents with these keys may hand files on to the
    /// host.
    pub fn choose_route(&self, context: &PushContext<'_>, keys: &[PublicKey], reporter: &Reporter) {
        let lacking = self.lacking();
        self.on_connection(|connection| {
            let bytes = lacking
                .iter()
                .filter(|delivery| delivery.has_bytes())
                .map(|delivery| delivery.bytes - connection.kept(delivery).bytes())
                .sum();
            let own_key = connection.ready.key;
            let others = keys.iter().copied().filter(|key| own_key != Some(*key));
            let keys: Vec<PublicKey> = others.collect();
            let (link, wire) = (&mut connection.link, &context.wire);
            let copy = &reporter.copy;
            copy.choose_route(self.host, link, bytes, wire, &keys)
        });
    }

    pub fn push_small(&self, context: &PushContext<'_>, reporter: &Reporter) {
        self.begun.get_or_init(Instant::now);
        let small: Vec<&Delivery> = self
            .lacking()
            .into_iter()
            .filter(|delivery| plan::is_small(delivery))
            .collect();
        if !small.is_empty() {
            self.on_connection(|connection| self.send(connection, &small, context, reporter));
        }
    }

    /// Sends the files that it lacks, and writes a record for each delivery, whatever happens.
    pub fn push(&self, context: &PushContext<'_>, reporter: &Reporter) {
        self.begun.get_or_init(Instant::now);
        let was_there = self.lock().connection.is_some();
        for delivery in &self.deliveries {
            let error = match self.fates.of(*delivery) {
                Fate::Present => None,
                Fate::Refused(why) => Some(why),
                Fate::Lacks | Fate::Shared(_) | Fate::Reported => continue,
            };
            self.done(delivery, unsent(error), reporter);
        }
        let lacking = self.lacking();
        if !lacking.is_empty() {
            self.on_connection(|connection| self.send(connection, &lacking, context, reporter));
        }
        let has_failed = self.fates.count(&Fate::Lacks) > 0;
        self.lock().complete = was_there && self.fates.are_reported();
        self.give_up(&self.undelivered(), reporter);
        // the message covers files that others put on shared storage, so it waits for them
        if self.fates.shared(&self.deliveries).is_empty() {
            self.show_end(has_failed, reporter);
        }
    }

    /// Shows that the host is finished; with `has_failed`, a file is missing there.
    fn show_end(&self, has_failed: bool, reporter: &Reporter) {
        let took = self.begun.get().map(Instant::elapsed).unwrap_or_default();
        let is_broken = self.lock().broken.is_some();
        let show = &reporter.copy.show;
        show.host(self.host, took, is_broken || has_failed);
    }

    /// Sends over a direct connection if there is one. What is missing when that breaks goes over
    /// the login.
    fn send(
        &self,
        connection: &mut PushConnection,
        lacking: &[&'a Delivery],
        context: &PushContext<'_>,
        reporter: &Reporter,
    ) -> Result<(), HostFault> {
        let compress = context.args.compress.wish();
        let send = |connection: &mut PushConnection, deliveries: &[&'a Delivery]| {
            push::push(connection, deliveries, compress, (self, reporter))
        };
        reporter.copy.show_route(self.host, &connection.link);
        let Err(broken) = send(connection, lacking) else {
            return Ok(());
        };
        let (link, wire) = (&mut connection.link, context.wire.wire);
        reporter.copy.fall_back(self.host, link, broken, wire)?;
        let missing = self.missing(connection, lacking, reporter)?;
        send(connection, &missing)
    }

    /// The deliveries that are missing after a connection broke; reports the results of the others.
    fn missing(
        &self,
        connection: &mut PushConnection,
        lacking: &[&'a Delivery],
        reporter: &Reporter,
    ) -> Result<Vec<&'a Delivery>, HostFault> {
        let unknown = self.fates.with(&Fate::Lacks, lacking.iter().copied());
        let present = connection.find_present(&unknown)?;
        let (present, missing): (Vec<_>, Vec<_>) = unknown
            .into_iter()
            .zip(present)
            .partition(|(_, present)| *present);
        for (delivery, _) in present {
            let outcome = Outcome {
                skipped: false,
                sent_bytes: delivery.bytes,
                ..unsent(None)
            };
            self.done(delivery, outcome, reporter);
        }
        let missing: Vec<&Delivery> = missing.into_iter().map(|(delivery, _)| delivery).collect();
        let alone: Vec<&Delivery> = missing
            .iter()
            .filter(|delivery| plan::comes_in_parts(delivery))
            .copied()
            .collect();
        connection.claim(&alone)?;
        Ok(missing)
    }

    /// If the host was given up, writes a record with the reason for each delivery that has none.
    pub fn give_up(&self, deliveries: &[&Delivery], reporter: &Reporter) {
        let Some(broken) = self.lock().broken.clone() else {
            return;
        };
        let rest = deliveries
            .iter()
            .filter(|delivery| self.fates.report(**delivery));
        for delivery in rest {
            reporter.record(delivery, &unsent(Some(broken.problem.clone())));
        }
    }

    /// Checks that this host sees the files which another has put on shared storage.
    pub fn check_shared(&self, context: &PushContext<'_>, reporter: &Reporter) {
        let mut files = self.fates.shared(&self.deliveries);
        if files.is_empty() {
            return;
        }
        // an NFS client may answer from what it knew of files and directories for 60 s: acregmax
        // and acdirmax in nfs(5)
        let until = Instant::now() + transfer::silence();
        let mut pause = FIRST_PAUSE;
        let mut has_failed = false;
        while !files.is_empty() {
            let asked: Vec<&Delivery> = files.iter().map(|(delivery, _)| *delivery).collect();
            let present = self.on_connection(|connection| connection.find_present(&asked));
            let is_over = present.is_none() || Instant::now() >= until || context.is_stopped();
            let present = present.unwrap_or_else(|| vec![false; files.len()]);
            let mut later = Vec::new();
            for ((delivery, other), present) in files.into_iter().zip(present) {
                // a file that the other host did not get is not on the shared storage either
                if !present && !is_over && !reporter.has_failed(other, delivery.file) {
                    later.push((delivery, other));
                    continue;
                }
                let outcome = if present {
                    unsent(None)
                } else {
                    self.not_shared(other, reporter.has_failed(other, delivery.file))
                };
                has_failed |= outcome.error.is_some();
                self.done(delivery, outcome, reporter);
            }
            files = later;
            if !files.is_empty() {
                context.pause(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        let mut state = self.lock();
        state.complete = state.broken.is_none();
        drop(state);
        self.show_end(has_failed, reporter);
    }

    /// Why this host does not have what `other` put, or was to put, on shared storage.
    fn not_shared(&self, other: u32, other_failed: bool) -> Outcome {
        let state = self.lock();
        if let Some(broken) = &state.broken {
            return unsent(Some(broken.problem.clone()));
        } else if other_failed {
            return unsent(Some(format!(
                "host {other}, which shares its directory, did not get it"
            )));
        }
        Outcome {
            fix: Some("check that both mount the same directory, then push again"),
            ..unsent(Some(format!(
                "it does not see the file that host {other} wrote on shared storage"
            )))
        }
    }
}
