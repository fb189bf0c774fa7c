//! Receives files from a [sender](crate::sender): each arrives whole or not at all.

use crate::content;
use crate::folder::Folder;
use crate::partial::{Finish, Partial, PartialNames};
use crate::parts::Parts;
use crate::sums;
use crate::tree::Tree;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;
use wire::files::{Batch, Block, FileAttributes, FileFault, FileStep, Open, Sum};

/// Where the files go, on a host or on the machine of the tool.
pub trait Destination: Sync {
    /// Fails if the file is not wanted.
    fn attributes(&self, sent: FileAttributes) -> Result<FileAttributes, FileFault>;

    /// The directory and the name of a small file until it is whole; `None` for its own directory.
    fn passing(&self, file: &FileAttributes) -> Result<(Option<Folder>, OsString), FileFault>;

    fn partial(&mut self, tree: &mut Tree, open: &Open) -> Result<Beginning, FileFault>;

    /// Called with the number of bytes that were just read of a file that is to be replaced, or of
    /// one that grew; returns whether to go on.
    fn has_read(&self, _bytes: u64) -> bool {
        true
    }

    /// Called when a file is whole.
    fn landed(&mut self, _open: &Open) {}
}

pub struct Beginning {
    pub names: PartialNames,
    pub keep: Parts,
    /// The file that has them, if it is the one that will be replaced, and [`Open::keep_sum`].
    pub replaced: Option<(File, Sum)>,
}

pub type FileResult = (u32, Result<(), FileFault>);

pub struct Receiver<D> {
    pub tree: Tree,
    pub destination: D,
    /// The files that arrive in blocks, by delivery number.
    files: BTreeMap<u32, (Open, Arc<Partial>)>,
}

impl<D: Destination> Receiver<D> {
    pub fn new(tree: Tree, destination: D) -> Receiver<D> {
        let files = BTreeMap::new();
        Receiver {
            tree,
            destination,
            files,
        }
    }

    /// Returns the results of the files that the step ends. What still arrives of such a file is
    /// dropped.
    pub fn step(&mut self, step: FileStep, body: Vec<u8>) -> Vec<FileResult> {
        match step {
            FileStep::Batch(batch) => return self.batch(batch, body),
            FileStep::Open(open) => {
                let id = open.file.id;
                if let Err(fault) = self.open(open) {
                    return vec![(id, Err(fault))];
                }
            }
            FileStep::Write(block) => {
                if let Err(fault) = self.write(&block, body) {
                    self.close(block.id, true);
                    return vec![(block.id, Err(fault))];
                }
            }
            FileStep::Commit { id, sum } => {
                let landed = self.commit(id, sum);
                return landed.map(|landed| (id, landed)).into_iter().collect();
            }
            FileStep::Abandon { id, keep, fault } => {
                self.close(id, keep);
                return fault.map(|fault| (id, Err(fault))).into_iter().collect();
            }
        }
        Vec::new()
    }

    /// Each small file or empty directory succeeds or fails by itself.
    fn batch(&mut self, batch: Batch, body: Vec<u8>) -> Vec<FileResult> {
        let mut folders = HashMap::new();
        let mut results = Vec::new();
        let content = content::unpack(&batch.content, body).map(Option::unwrap_or_default);
        let mut rest = content.as_deref().unwrap_or_default();
        for file in batch.files {
            let id = file.id;
            let bytes = usize::try_from(file.bytes).ok();
            let taken = bytes.and_then(|bytes| rest.split_off(..bytes));
            let written = match (&content, taken) {
                (Err(fault), _) => Err(fault.clone()),
                (Ok(_), None) => Err(FileFault::NotWhole),
                (Ok(_), Some(content)) => self.write_small(file, content),
            };
            results.push((
                id,
                written.map(|(path, folder)| drop(folders.insert(path, folder))),
            ));
        }
        self.tree.forget();
        if let Err(fault) = self.tree.sync(folders.values()) {
            for (_, result) in results.iter_mut().filter(|(_, result)| result.is_ok()) {
                *result = Err(fault.clone());
            }
        }
        results
    }

    /// Returns the directory that was written to.
    fn write_small(
        &mut self,
        file: FileAttributes,
        content: &[u8],
    ) -> Result<(Option<std::path::PathBuf>, Folder), FileFault> {
        let file = self.destination.attributes(file)?;
        let dst = file.dst.path();
        let folder = if file.is_folder() {
            self.tree.make(dst)?
        } else {
            let (passing, name) = self.destination.passing(&file)?;
            let passing = (passing.as_ref(), name.as_os_str());
            self.tree
                .write_small(dst, passing, content, finish_of(&file))?
        };
        Ok((dst.parent().map(Into::into), folder))
    }

    /// Continues with the parts that are kept.
    pub fn open(&mut self, open: Open) -> Result<Arc<Partial>, FileFault> {
        self.close(open.file.id, true);
        self.tree.forget();
        let file = self.destination.attributes(open.file.clone())?;
        let open = Open { file, ..open };
        let Beginning {
            names,
            keep,
            replaced,
        } = self.destination.partial(&mut self.tree, &open)?;
        let replaced = replaced.as_ref().map(|(file, sum)| (file, *sum));
        let watch = |bytes| self.destination.has_read(bytes);
        let bytes = open.file.bytes;
        let partial = Partial::begin(names, bytes, keep, replaced, &watch)?;
        let partial = Arc::new(partial);
        self.files
            .insert(open.file.id, (open, Arc::clone(&partial)));
        Ok(partial)
    }

    fn write(&mut self, block: &Block, body: Vec<u8>) -> Result<(), FileFault> {
        let Some((_, partial)) = self.files.get(&block.id) else {
            return Ok(());
        };
        let content = content::unpack(&block.content, body)?;
        let length = u64::from(block.content.length);
        partial.put(block.offset, length, content.as_deref())
    }

    /// Renames a complete file. If there is a sum, it grew while it was read.
    fn commit(&mut self, id: u32, sum: Option<Sum>) -> Option<Result<(), FileFault>> {
        let (open, partial) = self.files.remove(&id)?;
        let file = &open.file;
        let watch = |bytes| self.destination.has_read(bytes);
        let has_sum =
            |sum| sums::of_beginning(&watch, partial.file(), file.bytes).ok() == Some(sum);
        let landed = if sum.is_none_or(has_sum) {
            self.tree.commit(&partial, file.dst.path(), finish_of(file))
        } else {
            Err(FileFault::Changed)
        };
        match landed {
            Ok(()) => self.destination.landed(&open),
            // its content is wrong
            Err(FileFault::NotWhole | FileFault::Changed) => partial.discard(),
            // another attempt need not send it again
            Err(_) => partial.keep(),
        }
        Some(landed)
    }

    /// Nothing more of the file arrives over this connection. With `keep`, what has arrived can be
    /// continued.
    pub fn close(&mut self, id: u32, keep: bool) {
        match self.files.remove(&id) {
            Some((_, partial)) if keep => partial.keep(),
            Some((_, partial)) => partial.discard(),
            None => {}
        }
    }
}

impl<D> Drop for Receiver<D> {
    fn drop(&mut self) {
        self.files.values().for_each(|(_, partial)| partial.keep());
    }
}

fn finish_of(file: &FileAttributes) -> Finish {
    Finish {
        mode: file.mode,
        mtime: file.mtime,
        fsync: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts what is read, up to a limit.
    struct Counting {
        read: AtomicU64,
        limit: u64,
    }

    impl Destination for Counting {
        fn attributes(&self, sent: FileAttributes) -> Result<FileAttributes, FileFault> {
            Ok(sent)
        }

        fn passing(&self, _: &FileAttributes) -> Result<(Option<Folder>, OsString), FileFault> {
            Err(FileFault::OutOfOrder)
        }

        fn partial(&mut self, tree: &mut Tree, open: &Open) -> Result<Beginning, FileFault> {
            let (folder, _) = tree.make_parent(open.file.dst.path())?;
            Ok(Beginning {
                names: PartialNames::new(folder, "part"),
                keep: Parts::default(),
                replaced: None,
            })
        }

        fn has_read(&self, bytes: u64) -> bool {
            self.read.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.limit
        }
    }

    /// Whoever waits for the result learns that the file is read.
    #[test]
    fn the_check_of_a_file_that_grew_reports_progress_and_can_be_stopped() {
        let content = vec![7; 1 << 20];
        let bytes = content.len() as u64;
        let path = std::env::temp_dir().join(format!("dgl-tools-grown-{}", std::process::id()));
        for (limit, expected) in [(bytes, Ok(())), (bytes / 2, Err(FileFault::Changed))] {
            let tree = Tree::new(Folder::open_or_make(&path).unwrap(), &path, false);
            let read = AtomicU64::new(0);
            let mut receiver = Receiver::new(tree, Counting { read, limit });
            let dst = path.join("file");
            let file = FileAttributes {
                id: 1,
                dst: dst.as_path().into(),
                bytes,
                mode: 0o644,
                mtime: None,
            };
            let open = Open {
                file,
                partial_key: String::new(),
                keep: Vec::new(),
                keep_sum: None,
                chained: None,
            };
            let block = Block {
                id: 1,
                offset: 0,
                content: content::plain(&content),
            };
            assert!(receiver.step(FileStep::Open(open), Vec::new()).is_empty());
            assert!(
                receiver
                    .step(FileStep::Write(block), content.clone())
                    .is_empty()
            );
            let sum = Some(wire::files::Hex(*blake3::hash(&content).as_bytes()));
            let results = receiver.step(FileStep::Commit { id: 1, sum }, Vec::new());
            assert_eq!(results, [(1, expected.clone())]);
            assert_eq!(dst.exists(), expected.is_ok());
            let read = receiver.destination.read.load(Ordering::Relaxed);
            assert!(
                if expected.is_ok() {
                    read == bytes
                } else {
                    read < bytes
                },
                "{read}"
            );
            std::fs::remove_dir_all(&path).unwrap();
        }
    }
}
