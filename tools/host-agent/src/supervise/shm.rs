//! Remembers the job's files in /dev/shm while it lives, because a process that was killed cannot
//! be asked.

use crate::processes::ProcessHandle;
use crate::shm::{self, ShmFile};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use wire::Text;

/// The files of a job.
#[derive(Debug, Default)]
pub struct ShmWatch {
    files: BTreeSet<ShmFile>,
    /// The names in /dev/shm at the last look.
    listing: Vec<OsString>,
    /// How many looks are due because the names changed: a file is mapped a moment after it was
    /// made.
    due: u32,
    /// Files of DGL that existed before the job and that nobody mapped.
    before: BTreeSet<ShmFile>,
}

impl ShmWatch {
    /// Starts to watch now.
    pub fn begin() -> ShmWatch {
        ShmWatch {
            before: shm::stale_files(),
            ..ShmWatch::default()
        }
    }

    /// Looks if a look is due or asked for; returns the files that are new.
    pub fn look(
        &mut self,
        in_any_case: bool,
        members: impl FnOnce() -> BTreeSet<ProcessHandle>,
    ) -> Vec<ShmFile> {
        let listing = names();
        if listing != self.listing {
            self.listing = listing;
            self.due = 2;
        }
        if self.listing.is_empty() || (self.due == 0 && !in_any_case) {
            return Vec::new();
        }
        self.due = self.due.saturating_sub(1);
        let mapped = shm::mapped_shm(members().into_iter().map(|process| process.pid));
        mapped
            .into_iter()
            .filter(|file| self.files.insert(file.clone()))
            .collect()
    }

    /// Adds files of DGL that appeared while the job lived and that nobody maps: a server that
    /// failed while loading leaves such files.
    pub fn take_unseen(&mut self) {
        self.files
            .extend(shm::stale_files().difference(&self.before).cloned());
    }

    /// Adds files that another process has remembered.
    pub fn extend(&mut self, files: impl IntoIterator<Item = ShmFile>) {
        self.files.extend(files);
    }

    /// Removes the files that nobody maps; returns how many.
    pub fn remove(&mut self) -> u32 {
        shm::remove_unmapped(&self.files)
    }

    /// Whether a process still maps one of them.
    pub fn are_left(&self) -> bool {
        shm::are_there(&self.files)
    }
}

/// A file as a line, by which one process tells another of it.
pub fn note(file: &ShmFile) -> String {
    serde_json::json!([Text::from(file.name.clone()), file.device, file.inode]).to_string()
}

/// Parses such a line.
pub fn read_note(line: &str) -> Option<ShmFile> {
    let (name, device, inode): (Text, (u32, u32), u64) = serde_json::from_str(line).ok()?;
    Some(ShmFile {
        name: name.0,
        device,
        inode,
    })
}

fn names() -> Vec<OsString> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn notes_are_read_as_they_were_written() {
        for name in [b"g_node_meta".to_vec(), b"a b\n\xff".to_vec()] {
            let file = ShmFile {
                name: OsString::from_vec(name),
                device: (0, 27),
                inode: 12,
            };
            assert_eq!(read_note(&note(&file)), Some(file));
        }
        assert_eq!(read_note("x"), None);
    }
}
