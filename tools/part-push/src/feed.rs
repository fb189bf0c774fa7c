//! Opens the files that are sent, and finds out whether they have changed.

use crate::plan::{Delivery, DeliverySource};
use nix::sys::memfd::{MFdFlags, memfd_create};
use record::has_changed;
use std::fs::File;
use std::io::{self, Write as _};
use transfer::sender::{self, SourceFile};
use transfer::source;
use wire::files::{FOLDER, FileAttributes, Sum};

impl SourceFile for &Delivery {
    type Fault = String;

    fn id(&self) -> u32 {
        self.id
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn attributes(&self) -> FileAttributes {
        FileAttributes {
            id: self.id,
            dst: self.dst.as_ref().into(),
            bytes: self.bytes,
            mode: self.mode
                | match self.source {
                    DeliverySource::Folder => FOLDER,
                    _ => 0,
                },
            mtime: self.mtime,
        }
    }

    /// The source must still be what the record describes. Content from the record becomes a file
    /// in memory.
    fn open(&self) -> Result<File, String> {
        let path = match &self.source {
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
        let (source, meta) = source::open(path).map_err(failed)?;
        if has_changed(&meta, self.bytes, self.mtime) {
            return Err(format!(
                "{} changed since it was looked at; run part-map again, with --exclude if a \
                 program that runs writes to it",
                path.display()
            ));
        }
        Ok(source)
    }

    /// A script that has grown is another one, so no file may grow.
    fn check(&self, _: &File, read: io::Result<()>) -> Result<Option<Sum>, String> {
        let why = |error: &io::Error| match &self.source {
            DeliverySource::File(path) => format!("{}: {}", path.display(), source::why(error)),
            _ => source::why(error),
        };
        let is_shorter = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        match read {
            Err(error) if !is_shorter(&error) => Err(why(&error)),
            read => match changed(self) {
                Some(changed) => Err(changed),
                None => read.map(|()| None).map_err(|error| why(&error)),
            },
        }
    }

    fn read(&self, content: &mut Vec<u8>) -> Result<bool, String> {
        match &self.source {
            DeliverySource::File(_) => return sender::read_whole(*self, content),
            DeliverySource::Content(text) => content.extend_from_slice(text.as_bytes()),
            DeliverySource::Folder | DeliverySource::MustExist => {}
        }
        Ok(false)
    }
}

/// What is wrong with a source that changed after it was read.
pub fn changed(file: &Delivery) -> Option<String> {
    let DeliverySource::File(path) = &file.source else {
        return None;
    };
    match std::fs::metadata(path) {
        Err(error) => Some(format!("{}: {error}", path.display())),
        Ok(meta) => has_changed(&meta, file.bytes, file.mtime)
            .then(|| format!("{} changed while it was read", path.display())),
    }
}
