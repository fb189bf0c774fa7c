//! One host that gives files: its list, and the transfer to this machine.

use crate::local::Local;
use crate::plan::{PulledFile, SelectedFiles};
use remote::HostFault;
use remote::Session;
use remote::host_link::HostLink;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use transfer::partial::{KeptPartial, Partial};
use transfer::{SMALL, content, sums};
use wire::files::{
    FILES_AT_ONCE, FileEvent, FileFault, FileRequest, Give, Meta, NumberedFile, Read, Sum,
};

/// The most files of a host that are listed, wanted or not; more are a mistake in the pattern, or
/// of the host.
const MOST_FILES: usize = 2_000_000;
/// The longest path that Linux knows (PATH_MAX).
const MAX_PATH: usize = 4096;
/// What the wanted files of a host may take of this machine's memory while they are listed, in
/// bytes: some 300,000 files. Two more copies of each path are made later.
const MOST_LISTED: usize = 64 << 20;
/// What a listed file takes beside its path, in bytes.
const BESIDE_PATH: usize = 128;
/// How many requests wait at the host, so that the link need not.
const AHEAD: usize = 8;
/// How much is requested of a file at once.
const AT_ONCE: u64 = 1 << 30;

const HIDDEN: &str = "what is there cannot be read";
const UNREADABLE: &str = "it could not be read whole there";
const CHANGED: &str = "it changed on the host while it was read";

/// Called with the number of received bytes.
pub type Moved<'a> = &'a (dyn Fn(u64) + Sync);

/// The result for a file: the bytes received, or why it failed.
pub type Received = Result<u64, String>;

/// A path on the host, with its attributes, or why the host cannot read them.
pub type Listed = (PathBuf, Result<Meta, String>);

/// A host that gives files.
pub struct SourceHost {
    /// The connection.
    pub link: HostLink,
}

impl SourceHost {
    /// Waits until the host is ready. `stop` becomes the number of a signal that ends everything.
    pub fn begin(
        session: Session,
        stop: Arc<AtomicUsize>,
        workspace: &Path,
    ) -> Result<SourceHost, HostFault> {
        let (link, _) = HostLink::begin(
            session,
            stop,
            FileRequest::Give(Give {
                base: workspace.into(),
            }),
        )?;
        Ok(SourceHost { link })
    }

    /// The wanted files and empty directories, and unreadable paths that may contain some.
    pub fn list(&mut self, wanted: &SelectedFiles) -> Result<Vec<Listed>, HostFault> {
        self.link.send(FileRequest::Find {
            roots: wanted
                .roots
                .iter()
                .map(|root| root.as_str().into())
                .collect(),
        });
        let (mut chosen, mut listed, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let FileEvent::Found {
                entries,
                unreadable,
                last,
            } = self.link.next_event()?.0
            else {
                return Err(HostFault::reported("it listed no files"));
            };
            listed += (entries.len() + unreadable.len()).max(1);
            let found = entries
                .into_iter()
                .filter(|found| found.meta.is_file() || found.meta.is_folder())
                .map(|found| (PathBuf::from(found.path.0), Ok(found.meta)))
                .filter(|(path, _)| wanted.takes(path));
            let hidden = unreadable.into_iter().map(|hidden| {
                let why = format!("{HIDDEN}: {}", hidden.fault);
                (PathBuf::from(hidden.path.0), Err(why))
            });
            let hidden = hidden.filter(|(path, _)| wanted.may_be_at(path));
            for (path, meta) in found.chain(hidden) {
                let length = path.as_os_str().len();
                if length > MAX_PATH {
                    return Err(HostFault::reported(format!(
                        "it tells of a path of more than {MAX_PATH} bytes"
                    )));
                }
                bytes += length + meta.as_ref().err().map_or(0, String::len) + BESIDE_PATH;
                chosen.push((path, meta));
            }
            if listed > MOST_FILES || bytes > MOST_LISTED {
                return Err(HostFault::reported(format!(
                    "it tells of more than {MOST_FILES} files, or of wanted ones with {} MB of \
                     names: write a pattern that names fewer folders",
                    MOST_LISTED >> 20
                )));
            }
            if last {
                break;
            }
        }
        chosen.sort_by(|(a, _), (b, _)| a.cmp(b));
        chosen.dedup_by(|(a, _), (b, _)| a == b);
        Ok(chosen)
    }

    /// Brings files of at most [`SMALL`] bytes, many in one message.
    pub fn small<'i>(
        &mut self,
        local: &mut Local,
        items: &[&'i PulledFile],
        done: &mut dyn FnMut(&'i PulledFile, Received),
    ) -> Result<(), HostFault> {
        let mut questions = items.chunks(FILES_AT_ONCE).zip(0u32..);
        let mut expected: VecDeque<(u32, &PulledFile)> = VecDeque::new();
        loop {
            while expected.len() < AHEAD * FILES_AT_ONCE
                && let Some((some, chunk)) = questions.next()
            {
                let ids = (0u32..).map(|index| chunk * FILES_AT_ONCE as u32 + index);
                let named: Vec<(u32, &PulledFile)> = ids.zip(some.iter().copied()).collect();
                self.link.send(FileRequest::ReadSmall {
                    files: named.iter().map(|(id, item)| name(*id, item)).collect(),
                });
                expected.extend(named);
            }
            if expected.is_empty() {
                return Ok(());
            }
            match self.link.next_event()? {
                (FileEvent::Batch { files, content }, body) => {
                    let content = content::unpack(&content, body)
                        .map_err(|fault| HostFault::reported(fault.to_string()))?;
                    let content = content.unwrap_or_default();
                    let mut rest = content.as_slice();
                    for read in files {
                        let next = expected.pop_front().filter(|(id, _)| *id == read.id);
                        let bytes = usize::try_from(read.bytes).ok();
                        let taken = bytes.and_then(|bytes| rest.split_off(..bytes));
                        let (Some((_, item)), Some(bytes)) = (next, taken) else {
                            return Err(HostFault::reported(
                                "it sent another file than was asked for",
                            ));
                        };
                        done(
                            item,
                            whole(item, &read)
                                .and_then(|()| local.write_small(item, bytes))
                                .map(|()| read.bytes),
                        );
                    }
                }
                (other, _) => return Err(HostFault::unexpected(&other)),
            }
            local.forget();
        }
    }

    /// Fetches files that are not worth resuming, one after another without waiting for each.
    pub fn middle<'i>(
        &mut self,
        local: &mut Local,
        items: &[&'i PulledFile],
        done: &mut dyn FnMut(&'i PulledFile, Received),
        moved: Moved<'_>,
    ) -> Result<(), HostFault> {
        let mut asked = 0;
        for (position, item) in items.iter().enumerate() {
            while asked < items.len() && asked < position + AHEAD {
                self.ask(number(asked), items[asked], (0, items[asked].there.bytes));
                asked += 1;
            }
            let opened = local.begin(item, None);
            let (read, written) = self.receive(
                number(position),
                (0, item.there.bytes),
                opened.as_ref().map_err(Clone::clone),
                moved,
            )?;
            let result = opened.and_then(|partial| {
                let brought = whole(item, &read)
                    .and(written)
                    .and_then(|()| local.commit(item, &partial));
                brought.inspect_err(|_| partial.discard())
            });
            done(item, result.map(|()| item.there.bytes));
        }
        Ok(())
    }

    /// Fetches a large file, or its missing parts.
    pub fn large(
        &mut self,
        local: &mut Local,
        item: &PulledFile,
        moved: Moved<'_>,
    ) -> Result<Received, HostFault> {
        let kept = self.resume(local, item)?;
        let parts = kept.as_ref().map(|kept| kept.parts.clone());
        let parts = parts.unwrap_or_default();
        let received = item.there.bytes - parts.bytes();
        moved(parts.bytes());
        let partial = match local.begin(item, kept.as_ref()) {
            Ok(partial) => partial,
            Err(why) => return Ok(Err(why)),
        };
        let missing = parts.missing(item.there.bytes);
        match self.spans(item, &partial, &missing, moved) {
            Ok(Ok(())) => Ok(local.commit(item, &partial).map(|()| received)),
            Ok(Err(why)) if why == CHANGED || partial.parts().list().is_empty() => {
                partial.discard();
                Ok(Err(why))
            }
            other => {
                partial.keep();
                other.map(|written| written.map(|()| received))
            }
        }
    }

    /// Fetches all missing parts of a file, up to the first that fails; the inner error is the
    /// file's.
    fn spans(
        &mut self,
        item: &PulledFile,
        partial: &Partial,
        missing: &[(u64, u64)],
        moved: Moved<'_>,
    ) -> Result<Result<(), String>, HostFault> {
        for &(begin, end) in missing {
            let mut offset = begin;
            while offset < end {
                let length = AT_ONCE.min(end - offset);
                if let Err(why) = self.part(item, (offset, length), partial, moved)? {
                    return Ok(Err(why));
                }
                offset += length;
            }
        }
        Ok(Ok(()))
    }

    /// The parts of a file that are here and equal those on the host.
    fn resume(
        &mut self,
        local: &mut Local,
        item: &PulledFile,
    ) -> Result<Option<KeptPartial>, HostFault> {
        let Some(kept) = local.kept(item) else {
            return Ok(None);
        };
        let (bytes, parts) = (item.there.bytes, &kept.parts);
        self.link.send(FileRequest::Sum {
            file: name(0, item),
            bytes,
            parts: parts.list().to_vec(),
        });
        let ours = self
            .link
            .keep_alive_during(|stop| sums::of(stop, &kept.file, parts, bytes))?
            .unwrap_or_default();
        match self.link.next_event()? {
            (FileEvent::Sums { id: 0 }, body) => {
                let theirs = Sum::list(&body).unwrap_or_default();
                let parts = sums::same(parts, bytes, &ours, &theirs);
                let is_from_replaced_file = kept.is_from_replaced_file && !parts.list().is_empty();
                Ok(Some(KeptPartial {
                    parts,
                    is_from_replaced_file,
                    ..kept
                }))
            }
            (other, _) => Err(HostFault::unexpected(&other)),
        }
    }

    fn ask(&mut self, id: u32, item: &PulledFile, (offset, length): (u64, u64)) {
        self.link.send(FileRequest::Read {
            file: name(id, item),
            offset,
            length,
        });
    }

    /// Fetches a part of a file; the inner error is the file's.
    fn part(
        &mut self,
        item: &PulledFile,
        range: (u64, u64),
        partial: &Partial,
        moved: Moved<'_>,
    ) -> Result<Result<(), String>, HostFault> {
        self.ask(0, item, range);
        let (read, written) = self.receive(0, range, Ok(partial), moved)?;
        Ok(same(item, &read).and(written))
    }

    /// Receives a part of a file that was requested. What cannot be written here is received too,
    /// so that the conversation continues.
    fn receive(
        &mut self,
        id: u32,
        (offset, length): (u64, u64),
        mut partial: Result<&Partial, String>,
        moved: Moved<'_>,
    ) -> Result<(Read, Result<(), String>), HostFault> {
        let (mut next, end) = (offset, offset + length);
        loop {
            match self.link.next_event()? {
                (FileEvent::Block(block), body)
                    if block.id == id
                        && block.offset == next
                        && u64::from(block.content.length) <= end - next =>
                {
                    let content = content::unpack(&block.content, body)
                        .map_err(|fault| HostFault::reported(fault.to_string()))?;
                    let length = u64::from(block.content.length);
                    next += length;
                    moved(length);
                    if let Ok(writer) = &partial
                        && let Err(fault) = writer.put(block.offset, length, content.as_deref())
                    {
                        partial = Err(fault.here());
                    }
                }
                (FileEvent::Read(read), _) if read.id == id && read.bytes == next - offset => {
                    let written = partial.map(drop);
                    let short = if next < end && read.fault.is_none() {
                        Some(FileFault::NotWhole)
                    } else {
                        None
                    };
                    return Ok((
                        Read {
                            fault: read.fault.clone().or(short),
                            ..read
                        },
                        written,
                    ));
                }
                (other, _) => return Err(HostFault::unexpected(&other)),
            }
        }
    }
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

fn name(id: u32, item: &PulledFile) -> NumberedFile {
    NumberedFile {
        id,
        path: item.src.as_path().into(),
    }
}

/// Checks that the file that was read is the one that was listed.
fn same(item: &PulledFile, read: &Read) -> Result<(), String> {
    match (&read.fault, read.meta) {
        (Some(FileFault::NotWhole), _) => Err(CHANGED.to_owned()),
        (Some(fault), _) => Err(format!("{UNREADABLE}: {fault}")),
        (None, Some(meta)) if meta.is_same_version(&item.there) => Ok(()),
        (None, _) => Err(CHANGED.to_owned()),
    }
}

fn whole(item: &PulledFile, read: &Read) -> Result<(), String> {
    same(item, read)?;
    if read.bytes == item.there.bytes {
        Ok(())
    } else {
        Err(CHANGED.to_owned())
    }
}

/// Whether a file is sent together with others in one message.
pub fn is_small(item: &PulledFile) -> bool {
    item.there.bytes <= SMALL
}
