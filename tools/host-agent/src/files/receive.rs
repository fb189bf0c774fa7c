//! Receives files: each arrives whole or not at all.

use super::incoming_file::{IncomingFile, IncomingFiles};
use super::push_folder::{self, PushFolder};
use super::serve::Serve;
use super::{forward, inspect};
use crate::output::EventOutput;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use tls::PublicKey;
use transfer::folder::{Folder, Links, writable_by_others};
use transfer::partial::{Finish, KeptPartial, Partial, PartialNames};
use transfer::parts::Parts;
use transfer::receiver::{Receiver, split};
use transfer::{content, room, sums};
use wire::Failure;
use wire::files::{
    Batch, FileAttributes, FileEvent, FileFault, FileRequest, FolderReport, HandOn, Open, Receive,
    Sum,
};

/// A push to this host, over one connection.
pub struct Push {
    output: Arc<EventOutput>,
    base: PathBuf,
    /// The directory below which all files go; `None` if it does not exist.
    workspace: Option<Receiver>,
    /// The directory of the push; `None` if nothing is written.
    push_folder: Option<Arc<PushFolder>>,
    /// Whether this is a direct connection beside the login's, which owns the directory of the
    /// push.
    is_direct: bool,
    /// The files that arrive in blocks, by the numbers of their deliveries. Files that hosts hand
    /// on remain listed after they were renamed.
    files: BTreeMap<u32, Arc<IncomingFile>>,
    /// The files that arrive over all connections.
    incoming: Arc<IncomingFiles>,
}

impl Push {
    /// Opens the directory for a push.
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
        let push_folder = match (receive.dry, receive.direct) {
            (true, _) => None,
            (false, false) => {
                let folder = Folder::open_or_make(base);
                let failed =
                    |fault: FileFault| Failure::new(format!("{}: {fault}", base.display()));
                let folder = folder.map_err(failed)?;
                let push_folder = Arc::new(PushFolder::new(folder, &receive.run, receive.host));
                let _ = files.push_folder.set(Arc::downgrade(&push_folder));
                Some(push_folder)
            }
            (false, true) => {
                let push_folder = files.push_folder.get().and_then(Weak::upgrade);
                let missing = "the push that this connection belongs to is not at work there";
                Some(push_folder.ok_or_else(|| Failure::new(missing))?)
            }
        };
        let opened = match &push_folder {
            Some(push_folder) => Some(push_folder.base().clone()),
            None => Folder::open(base).ok(),
        };
        let workspace = opened.map(|folder| Receiver::new(folder, base, receive.fsync));
        let push = Push {
            base: base.to_owned(),
            workspace,
            push_folder,
            is_direct: receive.direct,
            files: BTreeMap::new(),
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
            empty: push_folder::is_empty(&self.base)
                .map_err(|fault| Failure::new(fault.to_string()))?,
            key: Some(self.incoming.identity.public_key().to_string()),
            exposed: writable_by_others(&self.base).map(Into::into),
        }));
        Ok(())
    }

    /// The receiver of files; there is none unless this push holds the lock.
    fn receiver(&mut self) -> Result<&mut Receiver, FileFault> {
        let writes = self.push_folder.is_some();
        let workspace = self.workspace.as_mut().filter(|_| writes);
        workspace.ok_or(FileFault::OutOfOrder)
    }

    /// Receives small files; each succeeds or fails by itself.
    fn batch(&mut self, batch: &Batch, body: Vec<u8>) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        let mut folders = BTreeMap::new();
        match content::unpack(&batch.content, body) {
            Err(fault) => failed.extend(batch.files.iter().map(|file| (file.id, fault.clone()))),
            Ok(content) => {
                let content = content.unwrap_or_default();
                let mut rest = content.as_slice();
                for file in &batch.files {
                    let bytes = usize::try_from(file.bytes).ok();
                    let taken = bytes.and_then(|bytes| rest.split_off(..bytes));
                    let taken = taken.ok_or(FileFault::NotWhole);
                    match taken.and_then(|content| self.receive_small(file, content)) {
                        Ok(folder) => {
                            folders.insert(file.dst.path().parent(), folder);
                            done.push(file.id);
                        }
                        Err(fault) => failed.push((file.id, fault)),
                    }
                }
            }
        }
        if let Some(workspace) = &mut self.workspace {
            workspace.forget();
            if let Err(fault) = workspace.sync(folders.values()) {
                failed.extend(done.drain(..).map(|id| (id, fault.clone())));
            }
        }
        self.output.send(FileEvent::Landed { done, failed });
    }

    /// Writes a small file, and returns its directory, or makes an empty directory.
    fn receive_small(
        &mut self,
        file: &FileAttributes,
        content: &[u8],
    ) -> Result<Folder, FileFault> {
        let dst = file.dst.path();
        if file.is_folder() {
            return self.receiver()?.make(dst);
        }
        let push_folder = self
            .push_folder
            .as_ref()
            .ok_or(FileFault::OutOfOrder)?
            .folder()?;
        let passing = (Some(&push_folder), OsStr::new(push_folder::SMALL));
        self.receiver()?
            .write_small(dst, passing, content, finish_of(file))
    }

    /// The partial file of this name.
    fn part(&self, partial_key: &str) -> Result<(&PushFolder, PartialNames), FileFault> {
        let push_folder = self
            .push_folder
            .as_deref()
            .filter(|_| is_partial_key(partial_key));
        let push_folder = push_folder.ok_or(FileFault::OutOfOrder)?;
        Ok((
            push_folder,
            push_folder::part(&push_folder.folder()?, partial_key),
        ))
    }

    fn open(&mut self, request: Open) -> Result<Arc<IncomingFile>, FileFault> {
        let (_, names) = self.part(&request.partial_key)?;
        let (bytes, output) = (request.file.bytes, Arc::clone(&self.output));
        let keep = Parts::of(&request.keep).whole_grains(bytes);
        let replaced = match request.from_replaced_file {
            true => {
                let (folder, name) = self.receiver()?.make_parent(request.file.dst.path())?;
                let version = self
                    .incoming
                    .compared
                    .lock()
                    .get(&request.partial_key)
                    .copied();
                // anything that has taken its place since is refused
                let file = folder.file(name).ok().zip(version);
                Some(file.ok_or(FileFault::EarlierChanged)?)
            }
            false => None,
        };
        let replaced = replaced.as_ref().map(|(file, version)| (file, *version));
        let partial = Partial::begin(names, bytes, keep, replaced, request.sparse)?;
        let file = Arc::new(IncomingFile::new(request, partial, output));
        self.incoming.add(&file);
        Ok(file)
    }

    /// Does something with a file that arrives; a failure is reported once.
    fn on(&mut self, id: u32, act: impl FnOnce(&IncomingFile) -> Result<(), FileFault>) {
        let Some(file) = self.files.get(&id).filter(|file| !file.is_over()) else {
            return;
        };
        if let Err(fault) = act(file) {
            self.fail(id, fault);
        }
    }

    fn fail(&mut self, id: u32, fault: FileFault) {
        // what arrived of it before is kept
        self.close(id);
        self.output.send(FileEvent::landed(id, Err(fault)));
    }

    /// Notes that nothing more of a file arrives over this connection.
    fn close(&mut self, id: u32) {
        if let Some(file) = self.files.remove(&id) {
            leave(&file);
        }
    }

    /// Renames a file that has arrived completely, if it has the right checksum.
    fn commit(&mut self, id: u32, sum: Option<Sum>) {
        let Some(file) = self.files.remove(&id) else {
            return;
        };
        // from now on, no other host can write to it either
        file.end(true);
        let attributes = &file.request.file;
        let dst = attributes.dst.path();
        let checked = sum.map_or(Ok(()), |sum| file.check(sum));
        let landed = checked.and_then(|()| {
            let receiver = self.receiver()?;
            receiver.commit(&file.partial, dst, finish_of(attributes))
        });
        match &landed {
            Ok(()) => {
                if let Some(push_folder) = &self.push_folder {
                    push_folder.forget_kept(&file.request.partial_key);
                }
                if file.request.chained.is_some() {
                    self.files.insert(id, file);
                }
            }
            // the tool compares what has arrived, and sends what is wrong
            Err(FileFault::OtherSum) => leave(&file),
            Err(_) => {
                file.end(false);
                file.partial.discard();
            }
        }
        self.output.send(FileEvent::landed(id, landed));
    }

    /// Starts to hand a file on to another host.
    fn hand_on(&self, to: HandOn) {
        match self.files.get(&to.id) {
            Some(file) => forward::begin(file, to, Arc::clone(&self.incoming)),
            None => self.output.send(FileEvent::NotHandedOn {
                id: to.id,
                problem: "it is not there".to_owned(),
            }),
        }
    }

    /// Opens the file that will be replaced, to read it.
    fn file_to_replace(&self, dst: &Path) -> Option<File> {
        let (folder, name) = split(dst)?;
        let folder = self.workspace.as_ref()?.find(folder, Links::Anywhere);
        folder.ok()?.file(name).ok()
    }

    fn claim(&self, partial_key: String, bytes: u64, dst: Option<&Path>) {
        let part = self.part(&partial_key).ok().map(|(push_folder, part)| {
            push_folder.claim(&part, &partial_key);
            part
        });
        let replaced = || self.file_to_replace(dst?);
        let kept = KeptPartial::find(part.as_ref(), bytes, replaced).and_then(|kept| {
            let sums = sums::of(&AtomicBool::new(false), &kept.file, &kept.parts, bytes).ok()?;
            Some((kept, sums))
        });
        let (mut parts, mut body, mut from_replaced_file) = (Vec::new(), Vec::new(), false);
        if let Some((kept, sums)) = kept {
            from_replaced_file = kept.is_from_replaced_file;
            parts = kept.parts.list().to_vec();
            body = sums.iter().flat_map(|sum| sum.0).collect();
            if from_replaced_file {
                let mut compared = self.incoming.compared.lock();
                compared.insert(partial_key.clone(), kept.version);
            }
        }
        let partial = FileEvent::Partial {
            partial_key,
            parts,
            from_replaced_file,
        };
        self.output.send_with(partial, &body);
    }
}

fn finish_of(file: &FileAttributes) -> Finish {
    Finish {
        mode: file.mode,
        mtime: file.mtime,
        fsync: false,
    }
}

/// Whether this may be the name of a partial file: two words of hexadecimal digits.
fn is_partial_key(key: &str) -> bool {
    let is_number = |word: &str| word.len() == 16 && record::hex::decode(word).is_some();
    key.split_once('.')
        .is_some_and(|(location, version)| is_number(location) && is_number(version))
}

/// Records the parts that have arrived; the file may be begun again.
fn leave(file: &IncomingFile) {
    file.end(false);
    let _ = file.partial.close();
}

impl Serve for Push {
    fn step(&mut self, step: FileRequest, body: Vec<u8>) -> Result<(), Failure> {
        if let (
            Some(push_folder),
            FileRequest::Claim { .. } | FileRequest::Open(_) | FileRequest::Batch(_),
        ) = (&self.push_folder, &step)
        {
            push_folder.begin_files();
        }
        match step {
            FileRequest::Inspect { sums } => {
                inspect::inspect(&body, sums, self.workspace.as_ref(), &self.output);
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
            FileRequest::Claim {
                partial_key,
                bytes,
                dst,
            } => {
                self.claim(partial_key, bytes, dst.as_ref().map(wire::Text::path));
            }
            FileRequest::Batch(batch) => self.batch(&batch, body),
            FileRequest::Open(open) => {
                let id = open.file.id;
                match self.open(open) {
                    Ok(file) => drop(self.files.insert(id, file)),
                    Err(fault) => self.fail(id, fault),
                }
            }
            FileRequest::Write(block) => {
                self.on(block.id, |file| file.block(&block, body));
            }
            FileRequest::HandOn(to) => self.hand_on(to),
            FileRequest::Commit { id, sum } => self.commit(id, sum),
            FileRequest::Abandon { id, keep: true } => self.close(id),
            FileRequest::Abandon { id, keep: false } => {
                if let Some(file) = self.files.remove(&id) {
                    file.end(false);
                    file.partial.discard();
                }
            }
            FileRequest::Sync { number } => self.output.send(FileEvent::Synced { number }),
            _ => return Err(Failure::new("a request that does not belong to receiving")),
        }
        Ok(())
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.files.values().for_each(|file| leave(file));
        if let Some(push_folder) = self.push_folder.as_ref().filter(|_| !self.is_direct) {
            push_folder.leave();
        }
    }
}

/// Receives a file that another host hands on.
pub struct ForwardReceiver {
    output: Arc<EventOutput>,
    file: Arc<IncomingFile>,
}

impl ForwardReceiver {
    /// Begins to receive. The tool must have begun the file, and chosen the other host to hand it
    /// on.
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
    fn step(&mut self, step: FileRequest, body: Vec<u8>) -> Result<(), Failure> {
        match step {
            FileRequest::Write(block) => {
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
