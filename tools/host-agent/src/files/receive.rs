//! Files that come to this host: each is there whole, or not at all.

use super::chain::Chain;
use super::place::{self, Place};
use super::stage::{self, Stage};
use super::{Serve, SharedOutput, look};
use nix::fcntl::Flock;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use transfer::partial::{self, Finish, Partial};
use transfer::parts::Parts;
use transfer::{content, source, sums};
use wire::files::{
    Batch, Begin, Block, Content, Fault, FileEvent, FileRequest, Receive, Small, Zeros,
};
use wire::{Failure, Text};

/// A push at work on this host, over one connection.
pub struct Receiver {
    fsync: bool,
    place: Option<Place>,
    /// `None` where nothing is written, and for one more connection.
    stage: Option<Stage>,
    /// Where files lie until they are whole.
    folder: PathBuf,
    _lane: Option<Flock<File>>,
    files: BTreeMap<u32, Fate>,
}

/// What becomes of a file whose content comes in blocks.
enum Fate {
    IncomingFile(Box<IncomingFile>),
    /// That was told; what still comes of it is passed over.
    Failed,
}

struct IncomingFile {
    begin: Begin,
    partial: Partial,
    chain: Option<Chain>,
}

impl Receiver {
    /// Takes the folder.
    pub fn begin(receive: Receive, told: &SharedOutput) -> Result<Receiver, Failure> {
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
        let base = receive.base.path();
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", base.display()));
        if !base.is_absolute() || !stage::is_word(&receive.run) {
            return Err(Failure::new(
                "base is an absolute path, and run a word of letters and digits",
            ));
        }
        // before it is made
        let empty = stage::is_empty(base).map_err(failed)?;
        let folder = stage::folder(base, &receive.run, receive.host);
        let (stage, lane) = match (receive.dry, receive.lane) {
            (true, _) => (None, None),
            (false, true) if stage::is_stage(&folder) => (None, stage::lane(&folder)),
            (false, true) => {
                return Err(Failure::new(
                    "the push that this connection belongs to is not at work there",
                ));
            }
            (false, false) => (Some(Stage::enter(base, &receive.run, receive.host)?), None),
        };
        let place = if stage.is_some() {
            Some(Place::new(base).map_err(failed)?)
        } else {
            None
        };
        told.tell(FileEvent::Ready {
            free_bytes: free_bytes(base),
            empty,
            agent: own_path(),
        });
        Ok(Receiver {
            fsync: receive.fsync,
            place,
            stage,
            folder,
            _lane: lane,
            files: BTreeMap::new(),
        })
    }

    fn finish_of(&self, file: &Small) -> Finish {
        Finish {
            mode: file.mode,
            mtime: file.mtime,
            fsync: self.fsync,
        }
    }

    /// Makes the folder of a file.
    fn make_folder(&mut self, dst: &Path) -> Result<PathBuf, Fault> {
        let folder = dst
            .parent()
            .filter(|_| dst.is_absolute() && dst.file_name().is_some())
            .ok_or(Fault::OutOfOrder)?;
        self.place.as_mut().ok_or(Fault::OutOfOrder)?.make(folder)?;
        Ok(folder.to_owned())
    }

    fn sync<'a>(&self, folders: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Fault> {
        let sync = |folder: &PathBuf| place::sync(folder).map_err(|error| Fault::system(&error));
        if self.fsync {
            folders.into_iter().try_for_each(sync)
        } else {
            Ok(())
        }
    }

    /// Small files; each one's fate is its own.
    fn batch(&mut self, batch: &Batch, body: Vec<u8>, told: &SharedOutput) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut folders = BTreeSet::new();
        match content::unpack(&batch.content, body) {
            Err(fault) => failed.extend(batch.files.iter().map(|file| (file.id, fault.clone()))),
            Ok(content) => {
                let mut rest = content.as_slice();
                for file in &batch.files {
                    let taken = usize::try_from(file.bytes)
                        .ok()
                        .and_then(|bytes| rest.split_at_checked(bytes));
                    let written = taken.ok_or(Fault::NotWhole).and_then(|(content, behind)| {
                        rest = behind;
                        self.small(file, content)
                    });
                    match written {
                        Ok(folder) => {
                            folders.insert(folder);
                            done.push(file.id);
                        }
                        Err(fault) => failed.push((file.id, fault)),
                    }
                }
            }
        }
        if let Err(fault) = self.sync(&folders) {
            failed.extend(done.drain(..).map(|id| (id, fault.clone())));
        }
        if let Some(place) = &mut self.place {
            place.forget();
        }
        told.tell(FileEvent::Landed { done, failed });
    }

    /// The folder it went to.
    fn small(&mut self, file: &Small, content: &[u8]) -> Result<PathBuf, Fault> {
        let folder = self.make_folder(file.dst.path())?;
        partial::write_small(
            &self.folder.join("one"),
            file.dst.path(),
            content,
            self.finish_of(file),
        )?;
        Ok(folder)
    }

    fn start(&mut self, begin: Begin) -> Result<Fate, Fault> {
        if !is_key(&begin.key) || (self.stage.is_none() && self._lane.is_none()) {
            return Err(Fault::OutOfOrder);
        }
        let (path, notes) = stage::part(&self.folder, &begin.key);
        let bytes = begin.file.bytes;
        let keep = Parts::of(&begin.keep).whole_grains(bytes);
        let opened = match begin.scattered {
            true => Partial::join(path, notes, bytes),
            false => Partial::begin(path, notes, bytes, keep),
        };
        let partial = opened.map_err(|error| Fault::system(&error))?;
        let chain = Chain::begin(&begin.next);
        Ok(Fate::IncomingFile(Box::new(IncomingFile {
            begin,
            partial,
            chain,
        })))
    }

    /// Does something with a file that comes; where it fails that is told, once.
    fn on(
        &mut self,
        id: u32,
        told: &SharedOutput,
        act: impl FnOnce(&mut IncomingFile) -> Result<(), Fault>,
    ) {
        let Some(Fate::IncomingFile(coming)) = self.files.get_mut(&id) else {
            return;
        };
        if let Err(fault) = act(coming) {
            self.fail(id, fault, told);
        }
    }

    fn fail(&mut self, id: u32, fault: Fault, told: &SharedOutput) {
        // what came of it before is kept
        self.files.insert(id, Fate::Failed);
        told.tell(FileEvent::Landed {
            done: Vec::new(),
            failed: vec![(id, fault)],
        });
    }

    fn block(&mut self, block: Block, body: Vec<u8>, told: &SharedOutput) {
        self.on(block.id, told, |coming| {
            if let Some(chain) = &mut coming.chain {
                chain.block(&block, &body);
            }
            coming
                .partial
                .write(block.at, &unpack(&block.content, body)?)
        });
    }

    fn zeros(&mut self, zeros: Zeros, told: &SharedOutput) {
        self.on(zeros.id, told, |coming| {
            if let Some(chain) = &mut coming.chain {
                chain.zeros(&zeros);
            }
            coming.partial.write_zeros(zeros.at, zeros.length)
        });
    }

    /// Gives a file its name.
    fn end(&mut self, id: u32, told: &SharedOutput) {
        let Some(Fate::IncomingFile(mut coming)) = self.files.remove(&id) else {
            return;
        };
        let file = coming.begin.file.clone();
        if let Some(place) = &mut self.place {
            place.forget();
        }
        let landed = self.make_folder(file.dst.path()).and_then(|folder| {
            coming
                .partial
                .finish(file.dst.path(), self.finish_of(&file))?;
            self.sync([&folder])
        });
        match landed {
            Ok(()) => {
                if let Some(stage) = &self.stage {
                    stage.forget_kept(&coming.begin.key);
                }
                told.tell(FileEvent::Landed {
                    done: vec![id],
                    failed: Vec::new(),
                });
            }
            Err(fault) => {
                coming.partial.discard();
                told.tell(FileEvent::Landed {
                    done: Vec::new(),
                    failed: vec![(id, fault)],
                });
            }
        }
    }

    fn folder(&mut self, id: u32, dst: &Path, told: &SharedOutput) {
        let made = self
            .place
            .as_mut()
            .ok_or(Fault::OutOfOrder)
            .and_then(|place| {
                place.forget();
                place.make(dst)
            });
        let failed = made.err().map(|fault| (id, fault));
        told.tell(FileEvent::Landed {
            done: if failed.is_none() {
                vec![id]
            } else {
                Vec::new()
            },
            failed: failed.into_iter().collect(),
        });
    }

    fn claim(&self, key: String, bytes: u64, told: &SharedOutput) {
        let parts = self
            .stage
            .as_ref()
            .filter(|_| is_key(&key))
            .map_or_else(Parts::default, |stage| stage.claim(&key, bytes));
        let (path, _) = stage::part(&self.folder, &key);
        let summed = source::open(&path).and_then(|file| sums::of(&file, &parts, bytes));
        match summed {
            Ok(sums) if !parts.list().is_empty() => {
                let body: Vec<u8> = sums.iter().flat_map(|sum| sum.0).collect();
                told.tell_with(
                    FileEvent::Partial {
                        key,
                        parts: parts.list().to_vec(),
                    },
                    &body,
                );
            }
            _ => told.tell(FileEvent::Partial {
                key,
                parts: Vec::new(),
            }),
        }
    }
}

fn unpack(content: &Content, body: Vec<u8>) -> Result<Vec<u8>, Fault> {
    content::unpack(content, body)
}

/// Two words of hexadecimal digits.
fn is_key(key: &str) -> bool {
    let is_number =
        |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    key.split_once('.')
        .is_some_and(|(place, version)| is_number(place) && is_number(version))
}

/// Where this agent lies; another host that shares the home may have put an equal one in its place.
fn own_path() -> Option<Text> {
    let path = std::fs::read_link("/proc/self/exe")
        .ok()?
        .into_os_string()
        .into_vec();
    let path = path
        .strip_suffix(b" (deleted)")
        .map_or(path.clone(), <[u8]>::to_vec);
    Some(Text::from(path))
}

/// Room for this user where a folder is or will be.
fn free_bytes(base: &Path) -> Option<u64> {
    let existing = base.ancestors().find(|folder| folder.is_dir())?;
    let room = nix::sys::statvfs::statvfs(existing).ok()?;
    Some(room.blocks_available() * room.fragment_size())
}

impl Serve for Receiver {
    fn step(
        &mut self,
        step: FileRequest,
        body: Vec<u8>,
        told: &SharedOutput,
    ) -> Result<(), Failure> {
        match step {
            FileRequest::Look { sums } => look::look(&body, sums, told),
            FileRequest::Peers => {
                told.tell(FileEvent::Peers {
                    hosts: self.stage.as_ref().map_or_else(Vec::new, Stage::peers),
                });
            }
            FileRequest::Claim { key, bytes } => self.claim(key, bytes, told),
            FileRequest::Folder { id, dst } => self.folder(id, dst.path(), told),
            FileRequest::Batch(batch) => self.batch(&batch, body, told),
            FileRequest::Begin(begin) => {
                let id = begin.file.id;
                match self.start(begin) {
                    Ok(fate) => drop(self.files.insert(id, fate)),
                    Err(fault) => self.fail(id, fault, told),
                }
            }
            FileRequest::Scatter { id } => {
                self.on(id, told, |coming| {
                    coming
                        .partial
                        .scatter()
                        .map_err(|error| Fault::system(&error))
                });
            }
            FileRequest::Block(block) => self.block(block, body, told),
            FileRequest::Zeros(zeros) => self.zeros(zeros, told),
            FileRequest::End { id } => self.end(id, told),
            FileRequest::Close { id } => {
                if let Some(Fate::IncomingFile(coming)) = self.files.remove(&id)
                    && let IncomingFile {
                        chain: Some(chain), ..
                    } = *coming
                {
                    chain.close();
                }
            }
            FileRequest::Discard { id } => {
                if let Some(Fate::IncomingFile(coming)) = self.files.remove(&id) {
                    coming.partial.discard();
                }
            }
            FileRequest::Sync { number } => told.tell(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to receiving")),
        }
        Ok(())
    }

    fn break_off(&mut self) {
        // what they have is written down, and they are begun again
        self.files.clear();
    }

    fn sign(&self) -> Option<Box<dyn Fn() + Send>> {
        let folder = self.stage.as_ref()?.folder.clone();
        Some(Box::new(move || Stage::sign(&folder)))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // what they have is written down
        self.files.clear();
        if let Some(stage) = &self.stage {
            stage.leave();
        }
    }
}
