//! A push to this host: its [`Receiver`] writes what the tool sends, and each file arrives whole or
//! not at all. A file that hosts pass on is an [`IncomingFile`] beside that.

use super::incoming_file::{IncomingFile, IncomingFiles};
use super::progress::{ReadBytes, watch};
use super::push_folder::{self, PushFolder};
use super::serve::Serve;
use super::{forward, inspect};
use agent::output::EventOutput;
use agent::requests::Requests;
use agent::supervisors;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tls::PublicKey;
use transfer::folder::{Folder, Links, exposed};
use transfer::own_folder;
use transfer::partial::{KeptPartial, PartialNames};
use transfer::parts::Parts;
use transfer::receiver::{Beginning, Destination, FileResult, Receiver};
use transfer::tree::{Tree, split};
use transfer::{room, sums};
use wire::Failure;
use wire::files::{
    Block, FileAttributes, FileEvent, FileFault, FileRequest, FileStep, FolderReport, HandOn, Open,
    Receive,
};

pub struct Push {
    output: Arc<EventOutput>,
    base: PathBuf,
    /// `None` if the workspace does not exist.
    receiver: Option<Receiver<PushDestination>>,
    /// `None` if nothing is written.
    push_folder: Option<Arc<PushFolder>>,
    /// The login's connection owns the directory of the push.
    is_direct: bool,
    has_made_base: bool,
    /// The files that hosts pass on, by delivery number, until the tool abandons them: the next
    /// host may still lack a file that has its name here.
    passed_on: BTreeMap<u32, Arc<IncomingFile>>,
    /// The files that arrive over all connections.
    incoming: Arc<IncomingFiles>,
}

impl Push {
    pub fn begin(
        receive: Receive,
        output: Arc<EventOutput>,
        files: &Arc<IncomingFiles>,
    ) -> Result<Push, Failure> {
        let base = receive.base.path();
        if !base.is_absolute() || !push_folder::is_word(&receive.run) {
            return Err(Failure::new(
                "base is an absolute path, and run a word of letters and digits",
            ));
        }
        let existing = base.ancestors().find(|path| path.exists());
        let has_made_base = !receive.dry && existing != Some(base);
        let push_folder = match (receive.dry, receive.direct) {
            (true, _) => None,
            (false, false) => {
                let folder = Folder::open_or_make(base);
                let failed =
                    |fault: FileFault| Failure::new(format!("{}: {fault}", base.display()));
                let folder = folder.map_err(failed)?;
                if receive.fsync
                    && has_made_base
                    && let Some(existing) = existing
                {
                    let synced = Folder::open(existing)
                        .and_then(|existing| Ok(folder.sync_up_to(&existing)?));
                    synced.map_err(failed)?;
                }
                let push_folder = Arc::new(PushFolder::new(folder, &receive.run, receive.host));
                let _ = files.push_folder.set(Arc::downgrade(&push_folder));
                Some(push_folder)
            }
            (false, true) => {
                let push_folder = files.push_folder.get().and_then(Weak::upgrade);
                let missing = "this connection belongs to no push that runs on the host";
                Some(push_folder.ok_or_else(|| Failure::new(missing))?)
            }
        };
        let opened = push_folder.as_ref().map(|folder| folder.base().clone());
        let opened = opened.or_else(|| Folder::open(base).ok());
        let receiver = opened.map(|folder| {
            let destination = PushDestination {
                push_folder: push_folder.clone(),
                read: ReadBytes::default(),
                output: Arc::clone(&output),
            };
            let tree = if receive.dry {
                Tree::only_read(folder, base)
            } else {
                Tree::new(folder, base, receive.fsync)
            };
            Receiver::new(tree, destination)
        });
        let push = Push {
            base: base.to_owned(),
            receiver,
            push_folder,
            is_direct: receive.direct,
            has_made_base,
            passed_on: BTreeMap::new(),
            incoming: Arc::clone(files),
            output,
        };
        push.enter()?;
        Ok(push)
    }

    /// Takes the lock and reports the state of the directory, or which other push holds the lock.
    fn enter(&self) -> Result<(), Failure> {
        let failed =
            |error: std::io::Error| Failure::new(format!("{}: {error}", self.base.display()));
        let entered = self
            .push_folder
            .as_ref()
            .map(|push_folder| push_folder.enter());
        let entered = entered.transpose().map_err(failed)?.unwrap_or_default();
        self.output.send(FileEvent::Ready(FolderReport {
            busy: entered.busy,
            unlocked: entered.unlocked,
            free_bytes: room::free_bytes(&self.base),
            free_inodes: room::free_inodes(&self.base),
            ignores_modes: self
                .push_folder
                .as_ref()
                .is_some_and(|push_folder| push_folder.ignores_modes()),
            empty: push_folder::is_empty(&self.base)
                .map_err(|fault| Failure::new(fault.to_string()))?,
            key: Some(self.incoming.identity.public_key()),
            exposed: match &self.receiver {
                Some(receiver) => receiver.tree.exposed(&self.base),
                None => exposed(&self.base, &|_| false),
            },
            open_to_group: self.has_made_base
                && Folder::open(&self.base).is_ok_and(|base| base.is_writable_by_group()),
        }));
        Ok(())
    }

    /// Reports the results of files.
    fn file_step(&mut self, step: FileStep, body: Vec<u8>) {
        let Some(receiver) = &mut self.receiver else {
            return;
        };
        let passed_on = match &step {
            FileStep::Write(Block { id, .. }) | FileStep::Commit { id, .. } => {
                self.passed_on.get(id).cloned()
            }
            FileStep::Open(Open { file, .. }) => self.passed_on.remove(&file.id),
            FileStep::Abandon { id, .. } => self.passed_on.remove(id),
            FileStep::Batch(_) => None,
        };
        if let (FileStep::Open(_) | FileStep::Abandon { .. }, Some(file)) = (&step, &passed_on) {
            // no other host writes to it any longer
            file.end(false);
        }
        let results = match (step, passed_on) {
            (FileStep::Open(open), _) if open.chained.is_some() => {
                let id = open.file.id;
                match receiver.open(open.clone()) {
                    Ok(partial) => {
                        let output = Arc::clone(&self.output);
                        let file = Arc::new(IncomingFile::new(open, partial, output));
                        self.incoming.add(&file);
                        self.passed_on.insert(id, file);
                        Vec::new()
                    }
                    Err(fault) => vec![(id, Err(fault))],
                }
            }
            (FileStep::Write(block), Some(file)) => match file.block(&block, body) {
                Err(fault) if !file.is_over() => self.refuse(block.id, fault),
                _ => Vec::new(),
            },
            (FileStep::Commit { id, sum }, Some(file)) => {
                // from now on, no other host can write to it either
                file.end(true);
                match sum.map_or(Ok(()), |sum| file.check(sum)) {
                    Ok(()) => receiver.step(FileStep::Commit { id, sum: None }, body),
                    // the tool compares what has arrived, and sends what is wrong
                    Err(fault) => self.refuse(id, fault),
                }
            }
            (step, _) => receiver.step(step, body),
        };
        if !results.is_empty() {
            self.output.send(FileEvent::landed(results));
        }
    }

    /// Closes a file that hosts pass on.
    fn refuse(&mut self, id: u32, fault: FileFault) -> Vec<FileResult> {
        if let Some(file) = self.passed_on.remove(&id) {
            file.end(false);
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.close(id, true);
        }
        vec![(id, Err(fault))]
    }

    fn hand_on(&self, to: HandOn) {
        match self.passed_on.get(&to.id) {
            Some(file) => forward::begin(file, to, Arc::clone(&self.incoming)),
            None => self.output.send(FileEvent::NotHandedOn {
                id: to.id,
                problem: "it is not on the host".to_owned(),
            }),
        }
    }

    fn file_to_replace(&self, dst: &Path) -> Option<File> {
        let (folder, name) = split(dst)?;
        let tree = &self.receiver.as_ref()?.tree;
        let folder = tree.find(folder, Links::Anywhere);
        folder.ok()?.file(name).ok()
    }

    fn claim(&self, partial_key: String, bytes: u64, dst: Option<&Path>) {
        let push_folder = self.push_folder.as_deref();
        let part = push_folder.and_then(|push_folder| {
            let part = part(push_folder, &partial_key).ok()?;
            push_folder.claim(&part, &partial_key);
            Some(part)
        });
        let replaced = || self.file_to_replace(dst?);
        let kept = KeptPartial::find(part.as_ref(), bytes, replaced).and_then(|kept| {
            let watch = watch(&self.output);
            let sums = sums::of(&watch, &kept.file, &kept.parts, bytes).ok()?;
            let sums: Vec<u8> = sums.iter().flat_map(|sum| sum.0).collect();
            Some((kept.parts.list().to_vec(), sums, kept.is_from_replaced_file))
        });
        let (parts, sums, from_replaced_file) = kept.unwrap_or_default();
        let partial = FileEvent::Partial {
            partial_key,
            parts,
            from_replaced_file,
        };
        self.output.send_with(partial, &sums);
    }
}

struct PushDestination {
    /// `None` if nothing is written.
    push_folder: Option<Arc<PushFolder>>,
    /// How much was read of the file that is to be replaced.
    read: ReadBytes,
    output: Arc<EventOutput>,
}

impl PushDestination {
    fn push_folder(&self) -> Result<&PushFolder, FileFault> {
        self.push_folder.as_deref().ok_or(FileFault::OutOfOrder)
    }
}

impl Destination for PushDestination {
    fn attributes(&self, sent: FileAttributes) -> Result<FileAttributes, FileFault> {
        self.push_folder().map(|_| sent)
    }

    fn passing(&self, _: &FileAttributes) -> Result<(Option<Folder>, OsString), FileFault> {
        let folder = self.push_folder()?.folder()?;
        Ok((Some(folder), push_folder::SMALL.into()))
    }

    fn partial(&mut self, tree: &mut Tree, open: &Open) -> Result<Beginning, FileFault> {
        self.read = ReadBytes::default();
        let key = &open.partial_key;
        let names = part(self.push_folder()?, key)?;
        let replaced = match open.keep_sum.as_deref() {
            Some(sum) => {
                let (folder, name) = tree.make_parent(open.file.dst.path())?;
                let file = folder.file(name);
                Some((file.map_err(|_| FileFault::EarlierChanged)?, *sum))
            }
            None => None,
        };
        Ok(Beginning {
            names,
            keep: Parts::of(&open.keep).whole_grains(open.file.bytes),
            replaced,
        })
    }

    fn has_read(&self, bytes: u64) -> bool {
        self.read.add(bytes, &self.output)
    }

    fn landed(&mut self, open: &Open) {
        if let Some(push_folder) = &self.push_folder {
            push_folder.forget_kept(&open.partial_key);
        }
    }
}

fn part(push_folder: &PushFolder, partial_key: &str) -> Result<PartialNames, FileFault> {
    if !own_folder::is_partial_key(partial_key) {
        return Err(FileFault::OutOfOrder);
    }
    Ok(push_folder::part(&push_folder.folder()?, partial_key))
}

impl Serve for Push {
    fn step(&mut self, step: FileRequest, body: Vec<u8>, _: &mut Requests) -> Result<(), Failure> {
        use FileStep::{Batch, Open};
        if let Some(push_folder) = &self.push_folder
            && let FileRequest::Claim { .. } | FileRequest::Step(Batch(_) | Open(_)) = &step
        {
            push_folder.begin_files();
        }
        match step {
            FileRequest::Inspect { sums, follow } => {
                let tree = self.receiver.as_ref().map(|receiver| &receiver.tree);
                inspect::inspect(&body, (sums, follow), tree, &self.output);
            }
            FileRequest::Enter => self.enter()?,
            FileRequest::Leave => self
                .push_folder
                .iter()
                .for_each(|push_folder| push_folder.leave()),
            FileRequest::Peers => {
                let peers = self
                    .push_folder
                    .as_ref()
                    .map(|push_folder| push_folder.peers());
                let hosts = peers.unwrap_or_default();
                self.output.send(FileEvent::Peers { hosts });
            }
            FileRequest::Jobs => {
                let folders = body.split(|byte| *byte == 0);
                let folders = folders.filter(|folder| !folder.is_empty());
                let folders = folders.map(|folder| Path::new(OsStr::from_bytes(folder)));
                let names = supervisors::jobs_near(&self.base, folders);
                self.output.send(FileEvent::Jobs { names });
            }
            FileRequest::Claim {
                partial_key,
                bytes,
                dst,
            } => {
                self.claim(partial_key, bytes, dst.as_ref().map(wire::Text::path));
            }
            FileRequest::Step(step) => self.file_step(step, body),
            FileRequest::HandOn(to) => self.hand_on(to),
            FileRequest::Sync { number } => self.output.send(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to receiving")),
        }
        Ok(())
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.passed_on.values().for_each(|file| file.end(false));
        // before the directory of the push is put away
        self.receiver = None;
        if let Some(push_folder) = self.push_folder.as_ref().filter(|_| !self.is_direct) {
            push_folder.leave();
        }
    }
}

pub struct ForwardReceiver {
    output: Arc<EventOutput>,
    file: Arc<IncomingFile>,
}

impl ForwardReceiver {
    /// The tool must have begun the file, and chosen the other host to hand it on.
    pub fn begin(
        key: &str,
        host: PublicKey,
        output: Arc<EventOutput>,
        files: &IncomingFiles,
    ) -> Result<ForwardReceiver, Failure> {
        let refused = || Failure::new("this host is not to receive that file from you");
        let file = files.find(key, host).ok_or_else(refused)?;
        Ok(ForwardReceiver { output, file })
    }
}

impl Serve for ForwardReceiver {
    fn step(&mut self, step: FileRequest, body: Vec<u8>, _: &mut Requests) -> Result<(), Failure> {
        match step {
            FileRequest::Step(FileStep::Write(block)) => {
                let written = self.file.block(&block, body);
                written.map_err(|fault| Failure::new(fault.to_string()))
            }
            FileRequest::Sync { number } => {
                self.output.send(FileEvent::Synced { number });
                Ok(())
            }
            _ => Err(Failure::new("a request that does not belong to handing on")),
        }
    }
}
