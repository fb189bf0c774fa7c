//! Reads the files that are sent, and detects those that change meanwhile.

use crate::plan::{Delivery, DeliverySource};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::{File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use transfer::source;
use wire::files::{BLOCK, FILES_AT_ONCE, FOLDER, FileAttributes};

/// The attributes of a file, for the host.
pub fn attributes(file: &Delivery) -> FileAttributes {
    FileAttributes {
        id: file.id,
        dst: file.dst.as_ref().into(),
        bytes: file.bytes,
        mode: file.mode
            | match file.source {
                DeliverySource::Folder => FOLDER,
                _ => 0,
            },
        mtime: file.mtime,
    }
}

/// Groups files of at most [`BLOCK`] bytes, each group for one message.
pub fn messages<'f, 'd>(mut rest: &'f [&'d Delivery]) -> impl Iterator<Item = &'f [&'d Delivery]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |file: &&&Delivery| {
            bytes += file.bytes;
            bytes <= BLOCK
        };
        let count = rest.iter().take(FILES_AT_ONCE).take_while(fits).count();
        let (now, later) = rest.split_at(count.max(1).min(rest.len()));
        rest = later;
        Some(now).filter(|now| !now.is_empty())
    })
}

/// The content of small files.
pub struct SmallFiles {
    /// The files that were read completely.
    pub files: Vec<FileAttributes>,
    /// Their content, one file after another.
    pub content: Vec<u8>,
    /// The files that could not be read, and why.
    pub failed: Vec<(u32, String)>,
}

/// Reads small files.
pub fn read_all(files: &[&Delivery]) -> SmallFiles {
    let mut read = SmallFiles {
        files: Vec::new(),
        content: Vec::new(),
        failed: Vec::new(),
    };
    for file in files {
        let before = read.content.len();
        match read_whole(file, &mut read.content) {
            Ok(()) => read.files.push(attributes(file)),
            Err(why) => {
                read.content.truncate(before);
                read.failed.push((file.id, why));
            }
        }
    }
    read
}

/// Reads exactly the bytes that the record promises.
fn read_whole(file: &Delivery, content: &mut Vec<u8>) -> Result<(), String> {
    let path = match &file.source {
        DeliverySource::Content(text) => {
            content.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        DeliverySource::Folder | DeliverySource::MustExist => return Ok(()),
        DeliverySource::File(path) => path,
    };
    let opened = open(file)?;
    let begin = content.len();
    content.resize(begin + usize::try_from(file.bytes).unwrap_or(0), 0);
    let count = source::read_at(&opened, 0, &mut content[begin..])
        .map_err(|error| format!("{}: {error}", path.display()))?;
    match compared(path, opened.metadata(), file) {
        Some(why) => Err(why),
        None if count as u64 != file.bytes => {
            Err(format!("{}: {}", path.display(), source::SHORTER))
        }
        None => Ok(()),
    }
}

/// Whether a file occupies less space than its size; `false` if that is unknown.
pub fn is_sparse(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| source::is_sparse(&meta))
}

/// Opens the source of a file, which must still be what the record describes. Content from the
/// record itself becomes a file in memory.
pub fn open(file: &Delivery) -> Result<File, String> {
    let path = match &file.source {
        DeliverySource::File(path) => path,
        DeliverySource::Content(text) => {
            let made = memfd_create("part-push", MFdFlags::MFD_CLOEXEC);
            let mut made = File::from(made.map_err(|error| error.to_string())?);
            let written = made.write_all(text.as_bytes());
            return written.map(|()| made).map_err(|error| error.to_string());
        }
        DeliverySource::Folder | DeliverySource::MustExist => {
            return Err("there is nothing here to send".to_owned());
        }
    };
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let source = File::open(path).map_err(failed)?;
    let meta = source.metadata().map_err(failed)?;
    match differs(&meta, file) {
        true => Err(format!("{} changed since it was looked at", path.display())),
        false => Ok(source),
    }
}

/// What is wrong with a source that was read, if it has changed.
pub fn changed(file: &Delivery) -> Option<String> {
    match &file.source {
        DeliverySource::File(path) => compared(path, std::fs::metadata(path), file),
        DeliverySource::Content(_) | DeliverySource::Folder | DeliverySource::MustExist => None,
    }
}

fn compared(path: &Path, now: io::Result<Metadata>, file: &Delivery) -> Option<String> {
    match now {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(meta) => {
            differs(&meta, file).then(|| format!("{} changed while it was read", path.display()))
        }
    }
}

fn differs(meta: &Metadata, file: &Delivery) -> bool {
    meta.len() != file.bytes
        || file
            .mtime
            .is_some_and(|(s, ns)| s != meta.mtime() || i64::from(ns) != meta.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_what_was_promised_and_what_is_not_there_is_named() {
        let file = |id, content: &str| Delivery {
            id,
            bytes: content.len() as u64,
            source: DeliverySource::Content(content.into()),
            ..Delivery::sample()
        };
        let long = "x".repeat(BLOCK as usize - 3);
        let missing = Delivery {
            id: 2,
            bytes: 1000,
            source: DeliverySource::File(Path::new("/no/such/file").into()),
            ..Delivery::sample()
        };
        let files = [&file(0, ""), &file(1, &long), &missing, &file(3, "hello")];
        let read: Vec<SmallFiles> = messages(&files).map(read_all).collect();
        let ids = |read: &SmallFiles| read.files.iter().map(|file| file.id).collect::<Vec<_>>();
        assert_eq!(
            read.iter().map(ids).collect::<Vec<_>>(),
            [vec![0, 1], vec![3]]
        );
        let failed: Vec<_> = read.iter().flat_map(|read| &read.failed).collect();
        assert!(
            failed.len() == 1 && failed[0].0 == 2 && failed[0].1.contains("No such file"),
            "{failed:?}"
        );
        let contents: Vec<&[u8]> = read.iter().map(|read| &read.content[..]).collect();
        assert_eq!(contents, [long.as_bytes(), b"hello"]);
    }
}
