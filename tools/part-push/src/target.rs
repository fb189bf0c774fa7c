//! One host that receives: what is there, what an earlier push left, what it hands on.

use crate::blocks::send_blocks;
use crate::feed::small;
use crate::plan::{Delivery, Source, is_sure, is_there, key};
use remote::Session;
use remote::host_client::{HostClient, HostFailure, Ready};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use transfer::parts::Parts;
use transfer::sums;
use wire::files::{Begin, FileEvent, FileRequest, Hop, Meta, Receive, Sum};

/// Names are asked for so many at once: 4096 bytes at most each, in one message.
const NAMES_AT_ONCE: usize = 200;

/// A host that receives.
pub struct Target {
    /// The connection.
    pub client: HostClient,
    /// What it said at first.
    pub ready: Ready,
    /// By key: what an earlier push left, and its sums.
    partials: BTreeMap<String, (Parts, Vec<Sum>)>,
    /// By delivery: what was sent of it for other hosts to have too.
    pub relayed: BTreeMap<u32, u64>,
}

impl Target {
    /// Waits until the host is ready.
    pub fn begin(
        session: Session,
        stop: Arc<AtomicUsize>,
        receive: Receive,
    ) -> Result<Target, HostFailure> {
        let (client, ready) = HostClient::begin(session, stop, FileRequest::Receive(receive))?;
        Ok(Target {
            client,
            ready,
            partials: BTreeMap::new(),
            relayed: BTreeMap::new(),
        })
    }

    /// The hosts of this push whose stage is seen from this one.
    pub fn peers(&mut self) -> Result<Vec<u32>, HostFailure> {
        self.client.send(FileRequest::Peers);
        match self.client.next_event()?.0 {
            FileEvent::Peers { hosts } => Ok(hosts),
            other => Err(HostFailure::unexpected(&other)),
        }
    }

    /// Which of the deliveries are there already, whole. By their sums: of all, or of those whose
    /// size and time are not enough to believe it; without `verify` of none.
    pub fn look(
        &mut self,
        deliveries: &[&Delivery],
        verify: Option<bool>,
    ) -> Result<Vec<bool>, HostFailure> {
        let there = self.ask(deliveries, false)?;
        let mut same: Vec<bool> = deliveries
            .iter()
            .zip(&there)
            .map(|(file, there)| there.is_some_and(|there| is_there(file, &there)))
            .collect();
        let unsure = |at: &usize| {
            same[*at]
                && ((verify == Some(true) && deliveries[*at].has_bytes())
                    || !is_sure(deliveries[*at]))
        };
        let check: Vec<usize> = (0..deliveries.len()).filter(unsure).collect();
        if verify.is_none() {
            // what cannot be shown to be the same is sent
            check.into_iter().for_each(|at| same[at] = false);
            return Ok(same);
        }
        let chosen: Vec<&Delivery> = check.iter().map(|at| deliveries[*at]).collect();
        let there = self.ask(&chosen, true)?;
        let ours: Vec<Option<Sum>> = self.client.keep_alive_during(|| {
            chosen
                .iter()
                .map(|delivery| sum(&delivery.source))
                .collect()
        })?;
        for ((at, there), ours) in check.into_iter().zip(there).zip(ours) {
            same[at] = ours.is_some() && there.and_then(|there| there.sum) == ours;
        }
        Ok(same)
    }

    fn ask(
        &mut self,
        deliveries: &[&Delivery],
        sums: bool,
    ) -> Result<Vec<Option<Meta>>, HostFailure> {
        let mut there = Vec::new();
        for some in deliveries.chunks(NAMES_AT_ONCE) {
            let names: Vec<u8> = some
                .iter()
                .flat_map(|file| [file.dst.as_os_str().as_bytes(), b"\0"].concat())
                .collect();
            self.client.send_with(FileRequest::Look { sums }, &names);
        }
        while there.len() < deliveries.len() {
            match self.client.next_event()?.0 {
                FileEvent::There { entries }
                    if !entries.is_empty() && there.len() + entries.len() <= deliveries.len() =>
                {
                    there.extend(entries);
                }
                other => return Err(HostFailure::unexpected(&other)),
            }
        }
        Ok(there)
    }

    /// Takes what an earlier push has left of these on the host.
    pub fn claim(&mut self, deliveries: &[&Delivery]) -> Result<(), HostFailure> {
        for delivery in deliveries {
            self.client.send(FileRequest::Claim {
                key: key(delivery),
                bytes: delivery.bytes,
            });
        }
        for delivery in deliveries {
            match self.client.next_event()? {
                (FileEvent::Partial { key: told, parts }, body) if told == key(delivery) => {
                    let parts = Parts::of(&parts);
                    let sums = Sum::list(&body).unwrap_or_default();
                    if !parts.list().is_empty()
                        && parts
                            .missing(delivery.bytes)
                            .iter()
                            .all(|(_, end)| *end <= delivery.bytes)
                    {
                        self.partials.insert(told, (parts, sums));
                    }
                }
                (other, _) => return Err(HostFailure::unexpected(&other)),
            }
        }
        Ok(())
    }

    /// What is there of a file, in bytes.
    pub fn partial_bytes(&self, delivery: &Delivery) -> u64 {
        self.partials
            .get(&key(delivery))
            .map_or(0, |(parts, _)| parts.bytes().min(delivery.bytes))
    }

    /// What is there of a file and is what the file here has there too.
    pub fn resume(&mut self, delivery: &Delivery, source: &File) -> Result<Parts, HostFailure> {
        let Some((parts, theirs)) = self.partials.get(&key(delivery)) else {
            return Ok(Parts::default());
        };
        let (parts, theirs) = (parts.whole_grains(delivery.bytes), theirs.clone());
        let ours = self
            .client
            .keep_alive_during(|| sums::of(source, &parts, delivery.bytes))?;
        Ok(ours.map_or_else(
            |_| Parts::default(),
            |ours| sums::same(&parts, delivery.bytes, &ours, &theirs),
        ))
    }

    /// Sends a file that the host keeps and hands on to others. Whether it arrived is seen by
    /// [`Target::claim`].
    pub fn hand(
        &mut self,
        next: Vec<Hop>,
        source: &File,
        delivery: &Delivery,
    ) -> Result<(), HostFailure> {
        let begin = Begin {
            file: small(delivery),
            key: key(delivery),
            keep: Vec::new(),
            scattered: false,
            next,
        };
        self.client.send(FileRequest::Begin(begin));
        send_blocks(
            &mut self.client,
            source,
            (delivery.id, 0, delivery.bytes),
            &|_| (),
        )?;
        self.relayed.insert(delivery.id, delivery.bytes);
        self.client.send(FileRequest::Close { id: delivery.id });
        let number = self.client.sync();
        loop {
            match self.client.next_event()?.0 {
                FileEvent::Synced { number: told } if told == number => return Ok(()),
                // it is sent again, and then told
                FileEvent::Landed { .. } => {}
                other => return Err(HostFailure::unexpected(&other)),
            }
        }
    }
}

/// The sum of a source, if it can be read.
fn sum(source: &Source) -> Option<Sum> {
    match source {
        Source::Content(text) => Some(sums::of_bytes(text.as_bytes())),
        Source::File(path) => sums::of_whole(&File::open(path).ok()?).ok(),
        Source::Folder | Source::There => None,
    }
}
