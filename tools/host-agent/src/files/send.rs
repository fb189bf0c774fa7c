//! Sends files that are fetched from this host. Nothing is written here.

use super::serve::Serve;
use super::shared_output::SharedOutput;
use super::stage;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use transfer::content::{self, Way};
use transfer::parts::Parts;
use transfer::source::Pieces;
use transfer::{source, sums};
use wire::files::{
    BLOCK, Block, FILES_AT_ONCE, Fault, FileEvent, FileRequest, Found, Give, Named, Read,
    Unreadable, Zeros,
};
use wire::{Failure, Text};

/// How many names are sent at once.
const FOUND_AT_ONCE: usize = 100;

/// A folder whose files are fetched.
pub struct Sender {
    base: PathBuf,
    /// What was read last.
    block: Vec<u8>,
}

impl Sender {
    /// The folder must exist.
    pub fn begin(give: &Give, told: &SharedOutput) -> Result<Sender, Failure> {
        let base = at_home(give.base.path());
        if !base.is_dir() {
            return Err(Failure::new(format!(
                "there is no folder {}",
                give.base.path().display()
            )));
        }
        told.tell(FileEvent::Ready {
            busy: None,
            free_bytes: None,
            empty: false,
            key: None,
        });
        Ok(Sender {
            base,
            block: Vec::new(),
        })
    }

    fn path(&self, path: &Text) -> PathBuf {
        self.base.join(path.path())
    }

    /// Lists files and empty folders at the roots and below. Symbolic links are not followed, and
    /// part-push's own folders are left out. What does not exist is not told of; what cannot be
    /// read is, because files that are wanted may be there.
    fn find(&self, roots: &[Text], told: &SharedOutput) {
        let mut found = Listing {
            told,
            entries: Vec::new(),
            unreadable: Vec::new(),
        };
        for root in roots {
            self.walk(root.path().to_owned(), &mut found);
        }
        told.tell(FileEvent::Found {
            entries: found.entries,
            unreadable: found.unreadable,
            last: true,
        });
    }

    fn walk(&self, root: PathBuf, found: &mut Listing<'_>) {
        let mut waiting = vec![root];
        while let Some(path) = waiting.pop() {
            let meta = match fs::symlink_metadata(self.base.join(&path)) {
                Ok(meta) => meta,
                Err(error) => {
                    found.add_unreadable(path, &error);
                    continue;
                }
            };
            if !meta.is_dir() {
                if meta.is_file() {
                    found.add(path, &meta);
                }
                continue;
            }
            let entries = match list(&self.base.join(&path)) {
                Ok(entries) => entries,
                Err(error) => {
                    found.add_unreadable(path, &error);
                    continue;
                }
            };
            if entries.is_empty() {
                found.add(path, &meta);
                continue;
            }
            let others = entries.into_iter().filter(|entry| {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                !(is_folder && stage::is_ours(&entry.file_name()))
            });
            waiting.extend(others.map(|entry| path.join(entry.file_name())));
        }
    }

    /// Sends small files, as many in one message as fit.
    fn read_small(&mut self, files: &[Named], told: &SharedOutput) {
        let (mut content, mut read) = (Vec::new(), Vec::new());
        for file in files.iter().take(FILES_AT_ONCE) {
            let (one, bytes) = self.read_whole(file);
            let bytes = &self.block[..bytes];
            if !read.is_empty() && (content.len() + bytes.len()) as u64 > BLOCK {
                send_batch(std::mem::take(&mut read), &content, told);
                content.clear();
            }
            content.extend_from_slice(bytes);
            read.push(one);
        }
        send_batch(read, &content, told);
    }

    /// Reads a whole file into `block`; returns how many bytes.
    fn read_whole(&mut self, named: &Named) -> (Read, usize) {
        let path = self.path(&named.path);
        let room = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        self.block.resize(room, 0);
        let read = source::open(&path).and_then(|file| {
            let bytes = source::read_at(&file, 0, &mut self.block)?;
            // a file that does not fit has grown; an error behind the end counts as one too
            source::read_at(&file, bytes as u64, &mut [0])?;
            Ok((bytes, file))
        });
        match read {
            Ok((bytes, file)) => {
                let meta = meta_now(&file, &path);
                (
                    Read {
                        id: named.id,
                        bytes: bytes as u64,
                        meta,
                        fault: None,
                    },
                    bytes,
                )
            }
            Err(error) => (
                Read {
                    id: named.id,
                    bytes: 0,
                    meta: None,
                    fault: Some(fault(&error)),
                },
                0,
            ),
        }
    }

    fn read(&mut self, named: &Named, at: u64, length: u64, told: &SharedOutput) {
        let path = self.path(&named.path);
        let mut read = Read {
            id: named.id,
            bytes: 0,
            meta: None,
            fault: None,
        };
        match source::open(&path) {
            Err(error) => read.fault = Some(fault(&error)),
            Ok(file) => {
                read.fault = self.blocks(&file, named.id, (at, length), &mut read.bytes, told);
                read.meta = meta_now(&file, &path);
            }
        }
        told.tell(FileEvent::Read(read));
    }

    fn blocks(
        &mut self,
        file: &File,
        id: u32,
        (at, length): (u64, u64),
        sent: &mut u64,
        told: &SharedOutput,
    ) -> Option<Fault> {
        let mut pieces = Pieces::new(file, at, length);
        while !told.is_closed() {
            let piece = match pieces.read_next(&mut self.block) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Some(fault(&error)),
            };
            let (at, length) = (piece.at, piece.length);
            if piece.is_zeros {
                told.tell(FileEvent::Zeros(Zeros { id, at, length }));
            } else {
                let content = content::plain(&self.block, Way::Straight);
                told.tell_with(FileEvent::Block(Block { id, at, content }), &self.block);
            }
            *sent += length;
        }
        None
    }

    fn sum(&self, named: &Named, bytes: u64, parts: &[(u64, u64)], told: &SharedOutput) {
        let parts = Parts::of(parts);
        let summed =
            source::open(&self.path(&named.path)).and_then(|file| sums::of(&file, &parts, bytes));
        let body: Vec<u8> = summed
            .unwrap_or_default()
            .iter()
            .flat_map(|sum| sum.0)
            .collect();
        told.tell_with(FileEvent::Sums { id: named.id }, &body);
    }
}

/// A list of names that is sent in pieces.
struct Listing<'a> {
    told: &'a SharedOutput,
    entries: Vec<Found>,
    unreadable: Vec<Unreadable>,
}

impl Listing<'_> {
    fn add(&mut self, path: PathBuf, meta: &fs::Metadata) {
        self.entries.push(Found {
            path: path.into(),
            meta: source::meta(meta),
        });
        self.tell_if_many();
    }

    /// What has just been removed, or never existed, is not there; anything else may hold files.
    fn add_unreadable(&mut self, path: PathBuf, error: &io::Error) {
        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            return;
        }
        self.unreadable.push(Unreadable {
            path: path.into(),
            fault: Fault::system(error),
        });
        self.tell_if_many();
    }

    fn tell_if_many(&mut self) {
        if self.entries.len() + self.unreadable.len() >= FOUND_AT_ONCE {
            self.told.tell(FileEvent::Found {
                entries: std::mem::take(&mut self.entries),
                unreadable: std::mem::take(&mut self.unreadable),
                last: false,
            });
        }
    }
}

/// The names in a folder: all of them, or the error that hides some.
fn list(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    fs::read_dir(folder)?.collect()
}

fn send_batch(files: Vec<Read>, bytes: &[u8], told: &SharedOutput) {
    told.tell_with(
        FileEvent::Batch {
            files,
            content: content::plain(bytes, Way::Straight),
        },
        bytes,
    );
}

/// The attributes of a file that was read, if its name still stands for it.
fn meta_now(file: &File, path: &Path) -> Option<wire::files::Meta> {
    let read = source::meta(&file.metadata().ok()?);
    let named = source::meta(&fs::symlink_metadata(path).ok()?);
    read.is_same_version(&named).then_some(read)
}

fn fault(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(_) => Fault::system(error),
        None if error.kind() == ErrorKind::UnexpectedEof => Fault::NotWhole,
        None => Fault::NoFile,
    }
}

/// A path in which a leading `~` is the home.
fn at_home(base: &Path) -> PathBuf {
    match (base.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(below), Some(home)) => Path::new(&home).join(below),
        _ => base.to_owned(),
    }
}

impl Serve for Sender {
    fn step(
        &mut self,
        step: FileRequest,
        _body: Vec<u8>,
        told: &SharedOutput,
    ) -> Result<(), Failure> {
        match step {
            FileRequest::Find { roots } => self.find(&roots, told),
            FileRequest::ReadSmall { files } => self.read_small(&files, told),
            FileRequest::Read { file, at, length } => self.read(&file, at, length, told),
            FileRequest::Sum { file, bytes, parts } => self.sum(&file, bytes, &parts, told),
            FileRequest::Sync { number } => told.tell(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to sending")),
        }
        Ok(())
    }
}
