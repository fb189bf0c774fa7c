//! Sends one host the files that it lacks, without waiting for confirmations in between.

use crate::blocks::{self, AHEAD};
use crate::compression::Compression;
use crate::connection::PushConnection;
use crate::feed;
use crate::plan::{Delivery, DeliverySource, partial_key};
use crate::reporter::{Outcome, Reporter};
use crate::target::Target;
use remote::Body;
use remote::HostFault;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};
use transfer::content;
use transfer::parts::Parts;
use transfer::sender::{self, Outlet, SmallFiles, SourceFile};
use transfer::source::SourcePiece;
use wire::files::{Batch, FileEvent, FileFault, FileRequest, FileStep, Open};

/// Reports each delivery as soon as the host has confirmed it. Measuring decides if `compress` is
/// `None`.
pub fn push(
    connection: &mut PushConnection,
    deliveries: &[&Delivery],
    compress: Option<bool>,
    (target, reporter): (&Target<'_>, &Reporter),
) -> Result<(), HostFault> {
    let mut push = Sending {
        connection,
        target,
        reporter,
        under_way: BTreeMap::new(),
        compression: Compression::new(compress),
        sent: 0,
        answered: 0,
    };
    let sent = push.all(deliveries);
    if sent.is_err() {
        // results that the host reported before it was lost count
        let _ = push.handle_events();
    }
    sent
}

struct Sending<'a, 'd> {
    connection: &'a mut PushConnection,
    target: &'a Target<'a>,
    reporter: &'a Reporter,
    /// Unconfirmed deliveries, by number.
    under_way: BTreeMap<u32, UnderWay<'d>>,
    compression: Compression,
    /// Bytes of content that were queued.
    sent: u64,
    /// The number of the last sync that the host has answered.
    answered: u64,
}

struct UnderWay<'d> {
    delivery: &'d Delivery,
    begun: Instant,
    sent: u64,
}

impl<'d> Sending<'_, 'd> {
    fn all(&mut self, deliveries: &[&'d Delivery]) -> Result<(), HostFault> {
        let is_here = |delivery: &&Delivery| delivery.source != DeliverySource::MustExist;
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            deliveries.iter().partition(|delivery| is_here(delivery));
        for delivery in elsewhere {
            let outcome = Outcome {
                error: Some("it is missing on the host, and this machine has no copy".to_owned()),
                fix: Some(
                    "put it there, or correct its name for part-map: in the config, or with \
                     --per-host",
                ),
                ..Outcome::default()
            };
            self.target.done(delivery, outcome, self.reporter);
        }
        self.begin_measuring()?;
        sender::send(self, &here)?;
        self.wait(|push| push.under_way.is_empty())
    }

    fn begin(&mut self, delivery: &'d Delivery, sent: u64) {
        self.under_way.insert(
            delivery.id,
            UnderWay {
                delivery,
                begun: Instant::now(),
                sent,
            },
        );
    }

    /// Bytes that were sent, or need not be.
    fn moved(&self, bytes: u64) {
        self.reporter.copy.show.moved(self.target.host, bytes);
    }

    fn pays(&mut self, block: &[u8]) -> bool {
        let gone = self.sent.saturating_sub(self.connection.link.pending());
        self.compression.pays(block, gone)
    }

    fn begin_measuring(&mut self) -> Result<(), HostFault> {
        if self.compression.is_unmeasured() {
            // otherwise bytes that wait in pipes, while the host finishes other files, would seem
            // to arrive at once
            self.wait_until_arrived()?;
        }
        let gone = self.sent.saturating_sub(self.connection.link.pending());
        self.compression.begin(gone);
        Ok(())
    }

    /// Content was queued: waits until little of it is left.
    fn continue_when_sent(&mut self, bytes: u64) -> Result<(), HostFault> {
        self.sent += bytes;
        self.connection.link.drain(AHEAD)?;
        if self.compression.wants_rate(self.sent) {
            self.wait_until_arrived()?;
            self.compression.measure(self.sent);
        }
        self.handle_events()
    }

    fn wait_until_arrived(&mut self) -> Result<(), HostFault> {
        let number = self.connection.link.sync();
        self.wait(|push| push.answered >= number)
    }

    fn handle_events(&mut self) -> Result<(), HostFault> {
        while let Some((event, _)) = self.connection.link.take_event() {
            match event {
                FileEvent::Landed { done, failed } => {
                    for id in done {
                        self.done(id, None);
                    }
                    for (id, fault) in failed {
                        if let Some(file) = self.under_way.get(&id) {
                            let why = why(file.delivery, &fault);
                            self.done(id, Some(why));
                        }
                    }
                }
                FileEvent::Synced { number } => self.answered = number,
                other => return Err(HostFault::unexpected(&other)),
            }
        }
        Ok(())
    }

    fn wait(&mut self, enough: impl Fn(&Self) -> bool) -> Result<(), HostFault> {
        loop {
            self.handle_events()?;
            if enough(self) {
                return Ok(());
            }
            self.connection.link.exchange(Duration::from_millis(200))?;
        }
    }

    fn done(&mut self, id: u32, error: Option<String>) {
        if let Some(UnderWay {
            delivery,
            begun,
            sent,
        }) = self.under_way.remove(&id)
        {
            let outcome = Outcome {
                error,
                sent_bytes: sent,
                elapsed: begun.elapsed(),
                ..Outcome::default()
            };
            self.target.done(delivery, outcome, self.reporter);
        }
    }
}

impl<'d> Outlet<&'d Delivery> for Sending<'_, 'd> {
    type Broken = HostFault;

    fn step(&mut self, step: FileStep, body: &[u8]) -> Result<(), HostFault> {
        let body = Body::Bytes(body.to_vec());
        self.connection
            .link
            .send_with(FileRequest::Step(step), body);
        self.handle_events()
    }

    fn batch(&mut self, files: &[&'d Delivery], read: SmallFiles<String>) -> Result<(), HostFault> {
        let raw = read.content.len() as u64;
        let packed = self.pays(&read.content);
        let (content, body) = content::pack(read.content, packed);
        let bytes = body.len() as u64;
        for file in files {
            // compressed bytes are attributed to files by their sizes
            self.begin(file, bytes * file.bytes / raw.max(1));
        }
        for (index, why) in read.failed {
            self.done(files[index].id, Some(why));
        }
        let batch = FileStep::Batch(Batch {
            files: read.files,
            content,
        });
        let link = &mut self.connection.link;
        link.send_with(FileRequest::Step(batch), Body::Bytes(body));
        self.moved(raw);
        self.continue_when_sent(bytes)
    }

    fn open(&mut self, file: &'d Delivery, source: &File) -> Result<Parts, HostFault> {
        self.begin(file, 0);
        let kept = self.connection.resume(file, source)?;
        let open = FileStep::Open(Open {
            file: file.attributes(),
            partial_key: partial_key(file),
            keep: kept.parts.list().to_vec(),
            keep_sum: kept.keep_sum.map(Box::new),
            chained: None,
        });
        self.step(open, &[])?;
        let counted = self.connection.counted(file);
        self.moved(kept.parts.bytes().saturating_sub(counted));
        self.begin_measuring()?;
        Ok(kept.parts)
    }

    fn write(
        &mut self,
        file: &'d Delivery,
        source: &File,
        piece: &SourcePiece,
        buffer: &mut Vec<u8>,
    ) -> Result<(), HostFault> {
        let packed = !piece.is_zeros && self.pays(buffer);
        let link = &mut self.connection.link;
        let bytes = blocks::send(link, source, (file.id, piece), buffer, packed)?;
        if let Some(file) = self.under_way.get_mut(&file.id) {
            file.sent += bytes;
        }
        self.moved(piece.length);
        self.continue_when_sent(bytes)
    }

    fn wants(&mut self, id: u32) -> bool {
        self.under_way.contains_key(&id)
    }

    fn read_all(&mut self) -> Result<io::Result<()>, HostFault> {
        // the pipe and ssh hold enough to keep the link busy
        self.connection.link.drain(0)?;
        Ok(self.connection.link.source_fault().map_or(Ok(()), Err))
    }

    fn abandon(&mut self, file: &'d Delivery, why: String) -> Result<(), HostFault> {
        let (id, keep, fault) = (file.id, false, None);
        if !self.under_way.contains_key(&id) {
            self.begin(file, 0);
        }
        self.done(id, Some(why));
        self.step(FileStep::Abandon { id, keep, fault }, &[])
    }
}

/// Why a file is not there. A checksum that differs usually means a changed source.
pub fn why(delivery: &Delivery, fault: &FileFault) -> String {
    let changed = match fault {
        FileFault::OtherSum | FileFault::NotWhole => feed::changed(delivery),
        _ => None,
    };
    changed.unwrap_or_else(|| fault.to_string())
}
