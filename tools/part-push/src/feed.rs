//! Prepares what is sent: small files are read and compressed, many in one message, while others
//! are sent. Detects sources that change.

use crate::plan::{Delivery, Source};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use transfer::content;
use transfer::source;
use wire::files::{BLOCK, Batch, FILES_AT_ONCE, FileRequest, Small};

/// Takes the messages; `Err` if nobody takes them any longer.
pub type Sink<'a> = &'a mut dyn FnMut(Message) -> Result<(), SinkClosed>;

/// Nobody takes further messages.
pub struct SinkClosed;

/// A message to a host.
pub struct Message {
    /// The request.
    pub step: FileRequest,
    /// The bytes behind the request.
    pub body: Vec<u8>,
    /// How many bytes of the files it has.
    pub raw: u64,
    /// The files that could not be read completely, and why.
    pub failed: Vec<(u32, String)>,
}

/// The description of a file for the host.
pub fn small(file: &Delivery) -> Small {
    Small {
        id: file.id,
        dst: file.dst.as_ref().into(),
        bytes: file.bytes,
        mode: file.mode,
        mtime: file.mtime,
    }
}

/// Makes the messages for files of at most [`BLOCK`] bytes, compressed if `packed`.
pub fn batches(files: &[&Delivery], packed: bool, sink: Sink<'_>) -> Result<(), SinkClosed> {
    let mut rest = files;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |file: &&&Delivery| {
            bytes += file.bytes;
            bytes <= BLOCK
        };
        let count = rest
            .iter()
            .take(FILES_AT_ONCE)
            .take_while(fits)
            .count()
            .max(1);
        let (now, later) = rest.split_at(count);
        rest = later;
        sink(batch(now, packed))?;
    }
    Ok(())
}

fn batch(files: &[&Delivery], packed: bool) -> Message {
    let (mut all, mut whole, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let before = all.len();
        match read(file, &mut all) {
            Ok(()) => whole.push(small(file)),
            Err(why) => {
                all.truncate(before);
                failed.push((file.id, why));
            }
        }
    }
    let raw = all.len() as u64;
    let (content, body) = content::pack(all, packed);
    Message {
        step: FileRequest::Batch(Batch {
            files: whole,
            content,
        }),
        body,
        raw,
        failed,
    }
}

/// Reads exactly the bytes that the record promises.
fn read(file: &Delivery, all: &mut Vec<u8>) -> Result<(), String> {
    let path = match &file.source {
        Source::Content(text) => {
            all.extend_from_slice(text.as_bytes());
            return Ok(());
        }
        Source::Folder | Source::There => return Ok(()),
        Source::File(path) => path,
    };
    let opened = open(path, file)?;
    let begin = all.len();
    all.resize(begin + usize::try_from(file.bytes).unwrap_or(0), 0);
    let count = source::read_at(&opened, 0, &mut all[begin..])
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let short = || format!("{}: {}", path.display(), source::SHORTER);
    match compared(path, opened.metadata(), file) {
        Some(why) => Err(why),
        None if count as u64 != file.bytes => Err(short()),
        None => Ok(()),
    }
}

/// Whether a file occupies less space than its size; `false` if nobody knows.
pub fn is_sparse(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| source::is_sparse(&meta))
}

/// Opens a file, which must still be the one that the record describes.
pub fn open(path: &Path, file: &Delivery) -> Result<File, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let source = File::open(path).map_err(failed)?;
    let meta = source.metadata().map_err(failed)?;
    differs(&meta, file)
        .then(|| format!("{} changed since it was looked at", path.display()))
        .map_or(Ok(source), Err)
}

/// What is wrong with a source that was read, if it has changed.
pub fn changed(path: &Path, file: &Delivery) -> Option<String> {
    compared(path, std::fs::metadata(path), file)
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
    use wire::files::Content;

    #[test]
    fn messages_hold_what_was_promised_and_what_is_not_there_is_named() {
        let file = |id, content: &str| Delivery {
            id,
            bytes: content.len() as u64,
            source: Source::Content(content.into()),
            ..Delivery::sample()
        };
        let long = "x".repeat(BLOCK as usize - 3);
        let missing = Delivery {
            id: 2,
            bytes: 1000,
            source: Source::File(Path::new("/no/such/file").into()),
            ..Delivery::sample()
        };
        let files = [&file(0, ""), &file(1, &long), &missing, &file(3, "hello")];
        for packed in [false, true] {
            let mut made = Vec::new();
            let all = batches(&files, packed, &mut |message| {
                made.push(message);
                Ok(())
            });
            assert!(all.is_ok(), "the sink took all");
            let ids = |message: &Message| match &message.step {
                FileRequest::Batch(batch) => {
                    batch.files.iter().map(|file| file.id).collect::<Vec<_>>()
                }
                _ => Vec::new(),
            };
            assert_eq!(
                made.iter().map(ids).collect::<Vec<_>>(),
                [vec![0, 1], vec![3]]
            );
            let failed: Vec<_> = made.iter().flat_map(|message| &message.failed).collect();
            assert!(
                failed.len() == 1 && failed[0].0 == 2 && failed[0].1.contains("No such file"),
                "{failed:?}"
            );
            let content = |message: Message| match message.step {
                FileRequest::Batch(Batch { content, .. }) => {
                    content::unpack(&content, message.body).unwrap()
                }
                _ => Vec::new(),
            };
            let contents: Vec<Vec<u8>> = made.into_iter().map(content).collect();
            assert_eq!(contents, [long.clone().into_bytes(), b"hello".to_vec()]);
        }
        let Content { packed, .. } = content::pack(long.into_bytes(), true).0;
        assert!(packed);
    }
}
