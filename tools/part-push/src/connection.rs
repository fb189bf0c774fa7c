//! The connection to a host, and what is known over it: the host's files, the partial files of an
//! earlier push, and the parts that need not be sent.

use crate::plan::{
    Delivery, DeliverySource, Original, is_plain_ip_config, is_present, is_sure, partial_key,
};
use record::RESERVED;
use remote::Body;
use remote::HostFault;
use remote::Session;
use remote::host_link::HostLink;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use transfer::parts::Parts;
use transfer::{content, source, sums};
use wire::files::{BLOCK, FileEvent, FileRequest, FolderReport, Meta, Receive, Sum};

/// Each name has at most 4096 bytes, and all are in one message.
const NAMES_AT_ONCE: usize = 200;

/// Which files that have the right size and time are compared by their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// None: a dry run reads nothing but metadata, and counts as lacking what is not certain.
    Never,
    /// Those whose size and time do not prove that they are the same.
    WhereUncertain,
    All,
}

pub struct PushConnection {
    pub link: HostLink,
    comparison: Comparison,
    /// What it reported at the beginning.
    pub ready: FolderReport,
    /// By name.
    partials: BTreeMap<String, PartsOnHost>,
    /// Deliveries whose destination already has a file.
    occupied: BTreeSet<u32>,
    /// Deliveries whose destination is blocked, and by what.
    pub in_the_way: BTreeMap<u32, String>,
    /// Deliveries that a chain left incomplete, with the bytes that the progress display has
    /// counted.
    left_chains: BTreeMap<u32, u64>,
}

#[derive(Clone, Default)]
pub struct PartsOnHost {
    pub parts: Parts,
    /// Of its pieces; `None` if they were compared.
    sums: Option<Vec<Sum>>,
    /// Whether they are in the file that this one will replace.
    from_replaced_file: bool,
    /// Of those that were compared, if they are in the file that this one will replace.
    pub keep_sum: Option<Sum>,
}

impl PushConnection {
    pub fn begin(
        session: Session,
        stop: Arc<AtomicUsize>,
        receive: Receive,
        comparison: Comparison,
    ) -> Result<PushConnection, HostFault> {
        let (link, ready) = HostLink::begin(session, stop, FileRequest::Receive(receive))?;
        Ok(PushConnection {
            link,
            comparison,
            ready,
            partials: BTreeMap::new(),
            occupied: BTreeSet::new(),
            in_the_way: BTreeMap::new(),
            left_chains: BTreeMap::new(),
        })
    }

    pub fn enter(&mut self) -> Result<(), HostFault> {
        self.link.send(FileRequest::Enter);
        self.ready = self.link.ready()?;
        Ok(())
    }

    /// Leaves the directory to other pushes until `enter` asks for it again.
    pub fn leave(&mut self) -> Result<(), HostFault> {
        self.link.send(FileRequest::Leave);
        // it has left when it answers the next request
        let asked = self.link.sync();
        match self.link.next_event()?.0 {
            FileEvent::Synced { number } if number == asked => Ok(()),
            other => Err(HostFault::unexpected(&other)),
        }
    }

    /// The hosts of this push that see the same directory.
    pub fn peers(&mut self) -> Result<Vec<u32>, HostFault> {
        self.link.send(FileRequest::Peers);
        match self.link.next_event()?.0 {
            FileEvent::Peers { hosts } => Ok(hosts),
            other => Err(HostFault::unexpected(&other)),
        }
    }

    /// The user's jobs that run near these directories.
    pub fn jobs(&mut self, folders: &[&Path]) -> Result<BTreeSet<String>, HostFault> {
        let mut jobs = BTreeSet::new();
        for chunk in folders.chunks(NAMES_AT_ONCE) {
            let names = names(chunk.iter().copied());
            self.link.send_with(FileRequest::Jobs, Body::Bytes(names));
            match self.link.next_event()?.0 {
                FileEvent::Jobs { names } => jobs.extend(names),
                other => return Err(HostFault::unexpected(&other)),
            }
        }
        Ok(jobs)
    }

    /// Whether each of the deliveries is already on the host completely.
    pub fn find_present(&mut self, deliveries: &[&Delivery]) -> Result<Vec<bool>, HostFault> {
        let existing = self.ask(deliveries, None)?;
        let mut same = Vec::with_capacity(deliveries.len());
        for (delivery, existing) in deliveries.iter().zip(&existing) {
            same.push(existing.is_some_and(|existing| self.is_present(delivery, existing)));
            let Some(existing) = existing else { continue };
            if existing.is_file() {
                self.occupied.insert(delivery.id);
            }
            let why = in_the_way_of(delivery, existing);
            self.in_the_way.extend(why.map(|why| (delivery.id, why)));
        }
        let unsure = |index: &usize| {
            let delivery = deliveries[*index];
            let must_compare = self.comparison == Comparison::All && delivery.has_bytes();
            same[*index] && (must_compare || !is_sure(delivery))
        };
        let check: Vec<usize> = (0..deliveries.len()).filter(unsure).collect();
        if self.comparison == Comparison::Never {
            check.into_iter().for_each(|index| same[index] = false);
            return Ok(same);
        }
        // a large file is compared by pieces, because it need not be sent whole if it differs; the
        // content of a record is always sent whole
        let (large, check): (Vec<usize>, Vec<usize>) = check.into_iter().partition(|index| {
            let delivery = deliveries[*index];
            matches!(delivery.source, DeliverySource::File(_)) && delivery.bytes > BLOCK
        });
        let chosen: Vec<&Delivery> = large.iter().map(|index| deliveries[*index]).collect();
        self.claim(&chosen)?;
        for index in large {
            same[index] = self.is_same(deliveries[index])?;
        }
        let chosen: Vec<&Delivery> = check.iter().map(|index| deliveries[*index]).collect();
        let largest = chosen.iter().map(|delivery| delivery.bytes).max();
        let existing = self.ask(&chosen, largest)?;
        let ours: Vec<Option<Sum>> = self.link.keep_alive_during(|stop| {
            let needed = |_: &&&Delivery| !stop.load(Ordering::Relaxed);
            let chosen = chosen.iter().take_while(needed);
            chosen.map(|delivery| sum(&delivery.source, stop)).collect()
        })?;
        for ((index, existing), ours) in check.into_iter().zip(existing).zip(ours) {
            same[index] = ours.is_some() && existing.and_then(|existing| existing.sum) == ours;
        }
        Ok(same)
    }

    fn is_present(&self, delivery: &Delivery, existing: Meta) -> bool {
        // permissions that its file system has made up show nothing
        let mode = if self.ready.ignores_modes {
            existing.mode & !0o7777 | delivery.mode
        } else {
            existing.mode
        };
        is_present(delivery, &Meta { mode, ..existing })
    }

    /// Whether a file has the name of a directory that this push has made, in upper case.
    pub fn folds_case(&mut self, base: &Path, run: &str, host: u32) -> Result<bool, HostFault> {
        let own = base.join(format!("{RESERVED}{run}.{host}").to_uppercase());
        let names = names([own.as_path()]);
        let inspect = FileRequest::Inspect {
            sums: None,
            follow: false,
        };
        self.link.send_with(inspect, Body::Bytes(names));
        match self.link.next_event()?.0 {
            FileEvent::Inspected { entries, .. } => Ok(entries.iter().any(Option::is_some)),
            other => Err(HostFault::unexpected(&other)),
        }
    }

    /// Whether its destination has a file already.
    pub fn is_occupied(&self, delivery: &Delivery) -> bool {
        self.occupied.contains(&delivery.id)
    }

    /// Whether all pieces of a large file are the same. Equal pieces are not compared again.
    fn is_same(&mut self, delivery: &Delivery) -> Result<bool, HostFault> {
        let DeliverySource::File(path) = &delivery.source else {
            return Ok(false);
        };
        let Ok((source, _)) = source::open(path) else {
            return Ok(false);
        };
        let kept = self.resume(delivery, &source)?;
        Ok(kept.keep_sum.is_some() && kept.parts.is_whole(delivery.bytes))
    }

    pub fn is_claimed(&self, delivery: &Delivery) -> bool {
        self.partials.contains_key(&partial_key(delivery))
    }

    fn ask(
        &mut self,
        deliveries: &[&Delivery],
        sums: Option<u64>,
    ) -> Result<Vec<Option<Meta>>, HostFault> {
        let mut existing = Vec::new();
        // a file that is sent replaces a link; one that must exist may be behind a link
        let follow = |delivery: &Delivery| delivery.source == DeliverySource::MustExist;
        let alike = deliveries.chunk_by(|one, next| follow(one) == follow(next));
        for chunk in alike.flat_map(|alike| alike.chunks(NAMES_AT_ONCE)) {
            let names = names(chunk.iter().map(|file| &*file.dst));
            let follow = follow(chunk[0]);
            let inspect = FileRequest::Inspect { sums, follow };
            self.link.send_with(inspect, Body::Bytes(names));
        }
        while existing.len() < deliveries.len() {
            match self.link.next_event()?.0 {
                FileEvent::Inspected {
                    entries,
                    hidden,
                    exposed,
                } if !entries.is_empty() && existing.len() + entries.len() <= deliveries.len() => {
                    for (index, fault) in hidden {
                        if let Some(delivery) = deliveries.get(existing.len().saturating_add(index))
                        {
                            let why = format!("the existing file cannot be examined: {fault}");
                            self.in_the_way.insert(delivery.id, why);
                        }
                    }
                    existing.extend(entries);
                    self.ready.exposed = self.ready.exposed.take().or(exposed);
                }
                other => return Err(HostFault::unexpected(&other)),
            }
        }
        Ok(existing)
    }

    /// Takes over the partial files of an earlier push. For a file without one, equal parts of the
    /// file at the destination are used.
    pub fn claim(&mut self, deliveries: &[&Delivery]) -> Result<(), HostFault> {
        for delivery in deliveries {
            let dst = delivery.dst.as_ref();
            self.link.send(FileRequest::Claim {
                partial_key: partial_key(delivery),
                bytes: delivery.bytes,
                dst: self.occupied.contains(&delivery.id).then(|| dst.into()),
            });
        }
        for delivery in deliveries {
            let (event, body) = self.next_but_landed()?;
            let FileEvent::Partial {
                partial_key: claimed,
                parts,
                from_replaced_file,
            } = event
            else {
                return Err(HostFault::unexpected(&event));
            };
            if claimed != partial_key(delivery) {
                return Err(HostFault::protocol("an answer for another file"));
            }
            let parts = Parts::of(&parts).whole_grains(delivery.bytes);
            self.partials.remove(&claimed);
            if !parts.list().is_empty() {
                let present = PartsOnHost {
                    parts,
                    sums: Some(Sum::list(&body).unwrap_or_default()),
                    from_replaced_file,
                    keep_sum: None,
                };
                self.partials.insert(claimed, present);
            }
        }
        Ok(())
    }

    /// The next event, except the failure to write a file that had already left a chain.
    fn next_but_landed(&mut self) -> Result<(FileEvent, Vec<u8>), HostFault> {
        loop {
            match self.link.next_event()? {
                (FileEvent::Landed { .. }, _) => {}
                event => return Ok(event),
            }
        }
    }

    /// Notes that the host has left a chain. What has arrived is asked before the rest is sent; the
    /// progress display has counted this many bytes.
    pub fn left_chain(&mut self, delivery: &Delivery, counted: u64) {
        self.partials.remove(&partial_key(delivery));
        self.left_chains.insert(delivery.id, counted);
    }

    /// The parts that its partial file on the host has.
    pub fn kept(&self, delivery: &Delivery) -> Parts {
        let present = self.partials.get(&partial_key(delivery));
        let present = present.filter(|present| !present.from_replaced_file);
        present.map_or_else(Parts::default, |present| present.parts.clone())
    }

    pub fn counted(&self, delivery: &Delivery) -> u64 {
        self.left_chains.get(&delivery.id).copied().unwrap_or(0)
    }

    /// The parts on the host that equal those of the file here. They are compared once.
    pub fn resume(&mut self, delivery: &Delivery, source: &File) -> Result<PartsOnHost, HostFault> {
        if self.left_chains.contains_key(&delivery.id) && !self.is_claimed(delivery) {
            self.claim(&[delivery])?;
        }
        let Some(present) = self.partials.get_mut(&partial_key(delivery)) else {
            return Ok(PartsOnHost::default());
        };
        if let Some(theirs) = present.sums.take() {
            let (link, parts) = (&mut self.link, &present.parts);
            let ours = link
                .keep_alive_during(|stop| {
                    sums::of(&sums::until(stop), source, parts, delivery.bytes)
                })?
                .unwrap_or_default();
            let (same, sum) = sums::same(parts, delivery.bytes, &ours, &theirs);
            let is_copied = present.from_replaced_file && !same.list().is_empty();
            (present.parts, present.keep_sum) = (same, is_copied.then_some(sum));
        }
        Ok(present.clone())
    }
}

/// Each ends with NUL.
fn names<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<u8> {
    let paths = paths.into_iter();
    let ended = paths.flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat());
    ended.collect()
}

/// Why what exists can neither be replaced nor be used.
fn in_the_way_of(delivery: &Delivery, existing: &Meta) -> Option<String> {
    if delivery.has_bytes() && existing.is_folder() {
        return Some("a directory on the host has its name".to_owned());
    }
    if delivery.source == DeliverySource::MustExist && !existing.is_folder() {
        return match (existing.is_file(), existing.bytes) {
            (false, _) => Some("it is neither a file nor a directory on the host".to_owned()),
            (true, 0) => Some("it is an empty file on the host".to_owned()),
            (true, _) => None,
        };
    }
    let original = delivery.original.as_ref()?;
    let (path, problem) = match original {
        Original::IpConfig => (
            &delivery.dst,
            "the host has an ip_config with comments, names or logins, which would be lost; run \
             part-map with --ip-config NAME, to write another one",
        ),
        Original::Config(path) => (
            path,
            "it is the partition config that part-map has read, which would be lost; run part-map \
             with --config-name NAME.json, to write another one",
        ),
    };
    let is_own = is_here(path, existing)
        && (*original != Original::IpConfig
            || std::fs::read_to_string(path).is_ok_and(|text| !is_plain_ip_config(&text)));
    is_own.then(|| problem.to_owned())
}

/// Whether what exists on the host is this file or link of this machine.
fn is_here(path: &Path, existing: &Meta) -> bool {
    [std::fs::symlink_metadata(path), std::fs::metadata(path)]
        .into_iter()
        .flatten()
        .any(|here| source::meta(&here).is_same_version(existing))
}

/// `None` if the source cannot be read.
fn sum(source: &DeliverySource, stop: &AtomicBool) -> Option<Sum> {
    match source {
        DeliverySource::Content(text) => Some(content::sum(text.as_bytes())),
        DeliverySource::File(path) => {
            let (file, meta) = source::open(path).ok()?;
            sums::of_beginning(&sums::until(stop), &file, meta.len()).ok()
        }
        DeliverySource::Folder | DeliverySource::MustExist => None,
    }
}
