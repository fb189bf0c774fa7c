//! Sends files that are fetched from this host. Nothing is written here.

use super::push_folder;
use super::serve::Serve;
use crate::environment::at_home;
use crate::output::EventOutput;
use nix::libc;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use transfer::content;
use transfer::folder::{Folder, Links};
use transfer::parts::Parts;
use transfer::source::Pieces;
use transfer::{source, sums};
use wire::files::{
    BLOCK, Block, FILES_AT_ONCE, FileEvent, FileFault, FileRequest, FolderReport, FoundFile, Give,
    NumberedFile, Read, Unreadable,
};
use wire::{Failure, Text};

/// How many names are sent at once.
const FOUND_AT_ONCE: usize = 100;

/// A directory whose files are fetched.
pub struct Sender {
    output: Arc<EventOutput>,
    base: Folder,
    /// The directory below it that was used last, and its path.
    last: Option<(PathBuf, Folder)>,
    /// What was read last.
    block: Vec<u8>,
}

impl Sender {
    /// The directory must exist.
    pub fn begin(give: &Give, output: Arc<EventOutput>) -> Result<Sender, Failure> {
        let base = Folder::open(&at_home(give.base.path())).map_err(|fault| match fault {
            FileFault::LinkOfOther(_) => Failure::new(fault.to_string()),
            _ => Failure::new(format!(
                "there is no directory {}",
                give.base.path().display()
            )),
        })?;
        output.send(FileEvent::Ready(FolderReport::default()));
        Ok(Sender {
            output,
            base,
            last: None,
            block: Vec::new(),
        })
    }

    /// The directory and the name of a file. The user's own links on the way may lead anywhere.
    fn split<'p>(&mut self, path: &'p Path) -> Result<(Folder, &'p OsStr), FileFault> {
        let name = path.file_name().unwrap_or(OsStr::new("."));
        let parent = path.parent().unwrap_or(Path::new(""));
        if let Some((last, folder)) = &self.last
            && last == parent
        {
            return Ok((folder.clone(), name));
        }
        let folder = self.base.descend(parent, Links::Anywhere, false)?;
        self.last = Some((parent.to_owned(), folder.clone()));
        Ok((folder, name))
    }

    /// Lists files and empty directories at the roots and below. Symbolic links are not followed,
    /// and part-push's own directories are left out. What does not exist is not told of; what
    /// cannot be read is, because files that are wanted may be there.
    fn find(&mut self, roots: &[Text]) {
        let output = Arc::clone(&self.output);
        let mut found = Listing {
            output: &output,
            entries: Vec::new(),
            unreadable: Vec::new(),
        };
        for root in roots {
            self.walk(root.path().to_owned(), &mut found);
        }
        output.send(FileEvent::Found {
            entries: found.entries,
            unreadable: found.unreadable,
            last: true,
        });
    }

    fn walk(&mut self, root: PathBuf, found: &mut Listing<'_>) {
        let mut waiting = vec![root.clone()];
        while let Some(path) = waiting.pop() {
            let is_ours = path.file_name().is_some_and(push_folder::is_ours) && path != root;
            let (meta, names) = match self.list(&path) {
                Ok((meta, _)) if is_ours && meta.is_dir() => continue,
                Ok(listed) => listed,
                Err(_) if is_ours => continue,
                Err(fault) => {
                    found.add_unreadable(path, fault);
                    continue;
                }
            };
            if meta.is_file() || names.as_ref().is_some_and(Vec::is_empty) {
                found.add(path, &meta);
                continue;
            }
            waiting.extend(names.into_iter().flatten().map(|name| path.join(name)));
        }
    }

    /// The attributes of a file or directory, and all names in a directory.
    fn list(&mut self, path: &Path) -> Result<(fs::Metadata, Option<Vec<OsString>>), FileFault> {
        let (folder, name) = self.split(path)?;
        let meta = folder.stat(name)?;
        let names = match meta.is_dir() {
            true => Some(folder.names_in(name)?),
            false => None,
        };
        Ok((meta, names))
    }

    /// Sends small files, as many in one message as fit.
    fn read_small(&mut self, files: &[NumberedFile]) {
        let (mut content, mut read) = (Vec::new(), Vec::new());
        for file in files.iter().take(FILES_AT_ONCE) {
            let (result, bytes) = self.read_whole(file);
            if !read.is_empty() && (content.len() + bytes) as u64 > BLOCK {
                self.send_batch(std::mem::take(&mut read), &content);
                content.clear();
            }
            content.extend_from_slice(&self.block[..bytes]);
            read.push(result);
        }
        self.send_batch(read, &content);
    }

    fn send_batch(&self, files: Vec<Read>, bytes: &[u8]) {
        let content = content::plain(bytes);
        let batch = FileEvent::Batch { files, content };
        self.output.send_with(batch, bytes);
    }

    /// Reads a whole file into `block`; returns how many bytes.
    fn read_whole(&mut self, named: &NumberedFile) -> (Read, usize) {
        let room = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        self.block.resize(room, 0);
        let mut read = Read {
            id: named.id,
            bytes: 0,
            meta: None,
            fault: None,
        };
        let whole = self.open(named).and_then(|opened| {
            let bytes = source::read_at(&opened.file, 0, &mut self.block);
            let bytes = bytes.map_err(|error| fault(&error))?;
            // a file that does not fit has grown; an error behind the end counts as one too
            let behind = source::read_at(&opened.file, bytes as u64, &mut [0]);
            behind.map_err(|error| fault(&error))?;
            Ok((bytes, opened.meta_now()))
        });
        match whole {
            Ok((bytes, meta)) => {
                (read.bytes, read.meta) = (bytes as u64, meta);
                (read, bytes)
            }
            Err(why) => {
                read.fault = Some(why);
                (read, 0)
            }
        }
    }

    fn open<'p>(&mut self, named: &'p NumberedFile) -> Result<Opened<'p>, FileFault> {
        let (folder, name) = self.split(named.path.path())?;
        let file = folder.file(name).map_err(|error| fault(&error))?;
        Ok(Opened { file, folder, name })
    }

    fn read(&mut self, named: &NumberedFile, offset: u64, length: u64) {
        let mut read = Read {
            id: named.id,
            bytes: 0,
            meta: None,
            fault: None,
        };
        match self.open(named) {
            Err(fault) => read.fault = Some(fault),
            Ok(opened) => {
                let part = (offset, length);
                read.fault = self.blocks(&opened.file, named.id, part, &mut read.bytes);
                read.meta = opened.meta_now();
            }
        }
        self.output.send(FileEvent::Read(read));
    }

    fn blocks(
        &mut self,
        file: &File,
        id: u32,
        (offset, length): (u64, u64),
        sent: &mut u64,
    ) -> Option<FileFault> {
        let mut pieces = Pieces::new(file, offset, length);
        while !self.output.is_closed() {
            let piece = match pieces.read_next(&mut self.block) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => return Some(fault(&error)),
            };
            let (offset, length) = (piece.offset, piece.length);
            let (content, body) = match piece.is_zeros {
                true => (content::zeros(length), &[][..]),
                false => (content::plain(&self.block), &self.block[..]),
            };
            self.output.send_with(
                FileEvent::Block(Block {
                    id,
                    offset,
                    content,
                }),
                body,
            );
            *sent += length;
        }
        None
    }

    fn sum(&mut self, named: &NumberedFile, bytes: u64, parts: &[(u64, u64)]) {
        let parts = Parts::of(parts);
        let opened = self.open(named).ok();
        let summed = opened
            .and_then(|opened| sums::of(&AtomicBool::new(false), &opened.file, &parts, bytes).ok());
        let body: Vec<u8> = summed
            .unwrap_or_default()
            .iter()
            .flat_map(|sum| sum.0)
            .collect();
        self.output
            .send_with(FileEvent::Sums { id: named.id }, &body);
    }
}

/// A list of names that is sent in pieces.
struct Listing<'a> {
    output: &'a EventOutput,
    entries: Vec<FoundFile>,
    unreadable: Vec<Unreadable>,
}

impl Listing<'_> {
    fn add(&mut self, path: PathBuf, meta: &fs::Metadata) {
        self.entries.push(FoundFile {
            path: path.into(),
            meta: source::meta(meta),
        });
        self.send_if_many();
    }

    /// What has just been removed, or never existed, is not there; anything else may hold files.
    fn add_unreadable(&mut self, path: PathBuf, fault: FileFault) {
        if matches!(fault, FileFault::System(libc::ENOENT | libc::ENOTDIR)) {
            return;
        }
        self.unreadable.push(Unreadable {
            path: path.into(),
            fault,
        });
        self.send_if_many();
    }

    fn send_if_many(&mut self) {
        if self.entries.len() + self.unreadable.len() >= FOUND_AT_ONCE {
            self.output.send(FileEvent::Found {
                entries: std::mem::take(&mut self.entries),
                unreadable: std::mem::take(&mut self.unreadable),
                last: false,
            });
        }
    }
}

/// A file that is read.
struct Opened<'p> {
    file: File,
    folder: Folder,
    name: &'p OsStr,
}

impl Opened<'_> {
    /// The attributes of the file, if its name still stands for it.
    fn meta_now(&self) -> Option<wire::files::Meta> {
        let read = source::meta(&self.file.metadata().ok()?);
        let named = source::meta(&self.folder.stat(self.name).ok()?);
        read.is_same_version(&named).then_some(read)
    }
}

fn fault(error: &io::Error) -> FileFault {
    match error.raw_os_error() {
        Some(number) => FileFault::System(number),
        None if error.kind() == ErrorKind::UnexpectedEof => FileFault::NotWhole,
        None => FileFault::NoFile,
    }
}

impl Serve for Sender {
    fn step(&mut self, step: FileRequest, _body: Vec<u8>) -> Result<(), Failure> {
        // another directory may have its name by now
        self.last = None;
        match step {
            FileRequest::Find { roots } => self.find(&roots),
            FileRequest::ReadSmall { files } => self.read_small(&files),
            FileRequest::Read {
                file,
                offset,
                length,
            } => self.read(&file, offset, length),
            FileRequest::Sum { file, bytes, parts } => self.sum(&file, bytes, &parts),
            FileRequest::Sync { number } => self.output.send(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to sending")),
        }
        Ok(())
    }
}
