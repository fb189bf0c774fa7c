//! A pull from this host: lists files and sends them. Nothing is written here.

use super::progress::watch;
use super::push_folder;
use super::serve::Serve;
use agent::output::EventOutput;
use agent::requests::Requests;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use host::home::at_home;
use nix::libc;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use transfer::folder::{Folder, Links};
use transfer::parts::Parts;
use transfer::sender::{self, Outlet, SourceFile};
use transfer::{SMALL, source, sums};
use wire::files::{
    FileAttributes, FileEvent, FileFault, FileRequest, FileStep, FileToSend, FilesToSend,
    FolderReport, FoundFile, Meta, Open, Sum, Unreadable,
};
use wire::{Failure, Text};

/// How many names are sent at once.
const FOUND_AT_ONCE: usize = 100;

/// A directory whose files are fetched.
pub struct Giver {
    output: Arc<EventOutput>,
    base: Folder,
    /// The directory below `base` that was used last, and its path.
    last: Option<(PathBuf, Folder)>,
}

impl Giver {
    pub fn begin(base: &Path, output: Arc<EventOutput>) -> Result<Giver, Failure> {
        let folder = Folder::open(&at_home(base)).map_err(|fault| match fault {
            FileFault::LinkOfOther(_) | FileFault::UnknownLink(_) | FileFault::RenamedLink(_) => {
                Failure::new(fault.to_string())
            }
            FileFault::System(libc::ENOENT | libc::ENOTDIR) => {
                Failure::new(format!("there is no directory {}", base.display()))
            }
            _ => Failure::new(format!("{}: {fault}", base.display())),
        })?;
        output.send(FileEvent::Ready(FolderReport::default()));
        Ok(Giver {
            output,
            base: folder,
            last: None,
        })
    }

    /// The user's own links on the way may lead anywhere.
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

    /// Lists files and empty directories at the roots and in the directories below that are to be
    /// entered, without part-push's own directories and those with the mark. A symbolic link counts
    /// as what it leads to, which must be in the workspace or in the root, unless the link is a
    /// root. What does not exist is omitted. What cannot be read is reported, because wanted files
    /// may be there, and so is what is no file.
    fn find(&mut self, roots: &[Text], enter: &GlobSet, mark: Option<&str>) {
        let output = Arc::clone(&self.output);
        let mut found = Listing {
            output: &output,
            entries: Vec::new(),
            unreadable: Vec::new(),
        };
        for root in roots {
            self.walk(root.path(), roots, (enter, mark), &mut found);
        }
        output.send(FileEvent::Found {
            entries: found.entries,
            unreadable: found.unreadable,
            last: true,
        });
    }

    fn walk(
        &mut self,
        root: &Path,
        roots: &[Text],
        (enter, mark): (&GlobSet, Option<&str>),
        found: &mut Listing<'_>,
    ) {
        let root_folder = self.base.descend(root, Links::Anywhere, false).ok();
        let mut waiting = vec![(root.to_owned(), None)];
        while let Some((path, above)) = waiting.pop() {
            let is_root = path == root;
            let is_ours = path.file_name().is_some_and(push_folder::is_ours) && !is_root;
            let within = root_folder.as_ref().filter(|_| !is_root);
            let is_entered = is_root || enter.is_match(path.strip_prefix(".").unwrap_or(&path));
            let listed = self.list(&path, within, above.as_deref(), is_entered);
            let Named { meta, names, sent } = match listed {
                Ok(named) if !is_entered && named.meta.is_dir() => continue,
                Ok(named) if is_ours && named.meta.is_dir() => continue,
                Ok(named) => named,
                Err(_) if is_ours => continue,
                Err(hidden) => {
                    if is_root || !roots.iter().any(|root| root.path() == path) {
                        found.add_unreadable(path, hidden);
                    }
                    continue;
                }
            };
            let Some(names) = names.filter(|names| !names.is_empty()) else {
                let meta = source::meta(&meta);
                found.add(path, Meta { sent, ..meta });
                continue;
            };
            let is_mark = |name: &OsString| mark.is_some_and(|mark| name == mark);
            if !is_root && names.iter().any(is_mark) {
                continue;
            }
            let id = (meta.dev(), meta.ino());
            let above = Some(Rc::new(Above { id, above }));
            waiting.extend(
                names
                    .into_iter()
                    .map(|name| (path.join(name), above.clone())),
            );
        }
    }

    /// The attributes of a file or directory, and all names in a directory that is entered. With
    /// `within`, a link must not lead out of the workspace and of that directory.
    fn list(
        &mut self,
        path: &Path,
        within: Option<&Folder>,
        above: Option<&Above>,
        is_entered: bool,
    ) -> Result<Named, Hidden> {
        let (folder, name) = self.split(path)?;
        let meta = folder.stat(name).map_err(FileFault::from)?;
        if !meta.is_symlink() {
            return Ok(Named::of(&folder, name, meta, is_entered)?);
        }
        let (end, name, meta) = self.base.stat_end_of_link(path, &folder)?;
        if meta.is_dir() {
            let is_above = above.is_some_and(|above| above.has((meta.dev(), meta.ino())));
            let contains = end.folder(&name).and_then(|end| end.contains(&folder));
            if is_above || contains.map_err(FileFault::from)? {
                return Err(FileFault::System(libc::ELOOP).into());
            }
        }
        let leads_out = |within: &Folder| {
            let is_inside = self.base.contains(&end)? || within.contains(&end)?;
            Ok::<_, FileFault>(!is_inside)
        };
        if within.map(leads_out).transpose()? == Some(true) {
            return Err(Hidden {
                fault: FileFault::LeadsOut(path.into()),
                is_file: meta.is_file(),
            });
        }
        Ok(Named::of(&end, &name, meta, is_entered)?)
    }

    /// The directory and the name of a file to send; a link stands for what it leads to, as in the
    /// list.
    fn source(&mut self, path: &Path) -> Result<(Folder, OsString), FileFault> {
        let (folder, name) = self.split(path)?;
        if folder.is_link(name) {
            return self.base.end_of_link(path, &folder);
        }
        Ok((folder, name.to_owned()))
    }

    /// Leaves out what the tool has of a single file.
    fn send(&mut self, wanted: &FilesToSend, their_sums: &[u8], requests: &mut Requests) {
        let output = Arc::clone(&self.output);
        let file = |wanted| GivenFile {
            wanted,
            place: self.source(wanted.path.path()),
            output: &output,
        };
        let files: Vec<GivenFile<'_>> = wanted.files.iter().map(file).collect();
        let files: Vec<&GivenFile<'_>> = files.iter().collect();
        let mut outlet = ToolOutlet {
            output: &output,
            requests,
            kept: Parts::of(&wanted.kept),
            sums: Sum::list(their_sums).unwrap_or_default(),
        };
        let Ok(()) = sender::send(&mut outlet, &files);
    }
}

struct GivenFile<'w> {
    wanted: &'w FileToSend,
    place: Result<(Folder, OsString), FileFault>,
    output: &'w EventOutput,
}

/// A file or directory on this host.
struct Named {
    meta: fs::Metadata,
    /// All names in a directory that is entered.
    names: Option<Vec<OsString>>,
    /// How many bytes of a file are sent, unless these are all.
    sent: Option<u64>,
}

impl Named {
    fn of(
        folder: &Folder,
        name: &OsStr,
        meta: fs::Metadata,
        is_entered: bool,
    ) -> Result<Named, FileFault> {
        let names = if meta.is_dir() && is_entered {
            Some(folder.names_in(name)?)
        } else if meta.is_dir() || meta.is_file() {
            None
        } else {
            return Err(FileFault::NoFile);
        };
        let may_have_holes = meta.is_file() && meta.len() > SMALL && source::is_sparse(&meta);
        let file = may_have_holes.then(|| folder.file(name).ok()).flatten();
        let sent = file.and_then(|file| source::sent_bytes(&file));
        Ok(Named { meta, names, sent })
    }
}

/// What cannot be listed, and why.
struct Hidden {
    fault: FileFault,
    /// Whether it is known to be no directory.
    is_file: bool,
}

impl From<FileFault> for Hidden {
    fn from(fault: FileFault) -> Hidden {
        Hidden {
            fault,
            is_file: false,
        }
    }
}

/// The directories on a path, by device and inode. A link to one of them has no end.
struct Above {
    id: (u64, u64),
    above: Option<Rc<Above>>,
}

impl Above {
    fn has(&self, id: (u64, u64)) -> bool {
        std::iter::successors(Some(self), |above| above.above.as_deref())
            .any(|above| above.id == id)
    }
}

impl SourceFile for &GivenFile<'_> {
    type Fault = FileFault;

    fn id(&self) -> u32 {
        self.wanted.id
    }

    fn bytes(&self) -> u64 {
        self.wanted.meta.bytes
    }

    /// The tool chooses the name, the mode and the time.
    fn attributes(&self) -> FileAttributes {
        FileAttributes {
            id: self.wanted.id,
            dst: "".into(),
            bytes: self.wanted.meta.bytes,
            mode: 0,
            mtime: None,
        }
    }

    fn open(&self) -> Result<File, FileFault> {
        let (folder, name) = self.place.as_ref().map_err(Clone::clone)?;
        folder.file(name).map_err(|error| fault(&error))
    }

    fn check(&self, source: &File, read: io::Result<()>) -> Result<Option<Sum>, FileFault> {
        read.map_err(|error| fault(&error))?;
        let (folder, name) = self.place.as_ref().map_err(Clone::clone)?;
        // the name, or the file that a link led to, must still be this file
        let now = [source.metadata(), folder.stat(name)];
        let now = now.map(|meta| meta.as_ref().map(source::meta).unwrap_or_default());
        let listed = &self.wanted.meta;
        if now.iter().all(|meta| meta.is_same_version(listed)) {
            return Ok(None);
        }
        // the log of a running job
        let has_grown = |meta: &Meta| {
            let listed_file = (listed.inode, listed.mode);
            (meta.inode, meta.mode) == listed_file && meta.bytes > listed.bytes
        };
        if !now.iter().all(has_grown) {
            return Err(FileFault::Changed);
        }
        let sum = sums::of_beginning(&watch(self.output), source, listed.bytes);
        sum.map(Some).map_err(|error| fault(&error))
    }
}

struct ToolOutlet<'a> {
    output: &'a EventOutput,
    requests: &'a mut Requests,
    /// The parts of the file that the tool has.
    kept: Parts,
    /// The checksums of these parts.
    sums: Vec<Sum>,
}

impl ToolOutlet<'_> {
    /// The parts that are the same here, and the sum of their checksums.
    fn same(&self, source: &File, bytes: u64) -> (Parts, Sum) {
        let ours = sums::of(&watch(self.output), source, &self.kept, bytes);
        sums::same(&self.kept, bytes, &ours.unwrap_or_default(), &self.sums)
    }
}

impl Outlet<&GivenFile<'_>> for ToolOutlet<'_> {
    type Broken = Infallible;

    fn step(&mut self, step: FileStep, body: &[u8]) -> Result<(), Infallible> {
        self.output.send_with(FileEvent::Step(step), body);
        Ok(())
    }

    fn open(&mut self, file: &GivenFile<'_>, source: &File) -> Result<Parts, Infallible> {
        let (kept, sum) = self.same(source, file.bytes());
        let open = FileStep::Open(Open {
            file: file.attributes(),
            partial_key: String::new(),
            keep: kept.list().to_vec(),
            keep_sum: Some(Box::new(sum)),
            chained: None,
        });
        self.step(open, &[])?;
        Ok(kept)
    }

    fn wants(&mut self, id: u32) -> bool {
        !self.output.is_closed() && !self.requests.abandons(id)
    }

    fn abandon(&mut self, file: &GivenFile<'_>, fault: FileFault) -> Result<(), Infallible> {
        let abandon = FileStep::Abandon {
            id: file.id(),
            keep: fault != FileFault::Changed,
            fault: Some(fault),
        };
        self.step(abandon, &[])
    }
}

/// A list of names that is sent in pieces.
struct Listing<'a> {
    output: &'a EventOutput,
    entries: Vec<FoundFile>,
    unreadable: Vec<Unreadable>,
}

impl Listing<'_> {
    fn add(&mut self, path: PathBuf, meta: Meta) {
        self.entries.push(FoundFile {
            path: path.into(),
            meta,
        });
        self.send_if_many();
    }

    /// What has just been removed, or never existed, is left out; anything else may hold files.
    fn add_unreadable(&mut self, path: PathBuf, hidden: Hidden) {
        let Hidden { fault, is_file } = hidden;
        if matches!(fault, FileFault::System(libc::ENOENT | libc::ENOTDIR)) {
            return;
        }
        self.unreadable.push(Unreadable {
            path: path.into(),
            fault,
            is_file,
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

fn glob_set(globs: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(GlobBuilder::new(glob).literal_separator(true).build()?);
    }
    set.build()
}

fn fault(error: &io::Error) -> FileFault {
    match error.raw_os_error() {
        Some(number) => FileFault::System(number),
        None if error.kind() == ErrorKind::UnexpectedEof => FileFault::Changed,
        None => FileFault::NoFile,
    }
}

impl Serve for Giver {
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        requests: &mut Requests,
    ) -> Result<(), Failure> {
        // another directory may have its name by now
        self.last = None;
        match step {
            FileRequest::Find { roots, enter, mark } => {
                let enter = glob_set(&enter).map_err(|error| Failure::new(error.to_string()))?;
                self.find(&roots, &enter, mark.as_deref());
            }
            FileRequest::Send(wanted) => self.send(&wanted, &body, requests),
            // that file has been sent by now
            FileRequest::Step(FileStep::Abandon { .. }) => {}
            FileRequest::Sync { number } => self.output.send(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to sending")),
        }
        Ok(())
    }
}
