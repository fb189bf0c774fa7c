//! Sends files to a [receiver](crate::receiver), in either direction: for part-push on this
//! machine, for part-pull on a host.
//!
//! | step | the sender | the receiver |
//! |---|---|---|
//! | `batch` | reads small files, many for one message | writes and renames each |
//! | `open` | says which parts the receiver may keep | copies those parts |
//! | `write` | reads what is missing in blocks; announces zeros | writes it |
//! | `commit` | has read what was listed | gives it its mode, time and name |
//! | `abandon` | could not read it, or it has changed | keeps what has arrived, or removes it |
//!
//! The tool lists what the other end has and decides what is missing: `inspect` for a push, `find`
//! for a pull. The [sums](crate::sums) of what the receiver has kept show which parts of a large
//! file need not be sent. In a push the sender asks for these by `claim`; in a pull they come with
//! the request for the file. The sender does not wait for the receiver. If a file has grown
//! meanwhile, `commit` has the sum of what was listed of it, read a second time, so that only a
//! true beginning arrives. A receiver that cannot write a file reports it once, by `landed` or
//! `abandon`, and drops what still arrives of it. A file belongs to the connection over which it
//! was begun. If that breaks, the parts that have arrived are kept, and the file is begun again
//! over another one.
//!
//! Two traits hide the direction: [`SourceFile`] is where a file comes from and when it counts as
//! changed; [`Outlet`] is the connection, for part-push with compression and the results of the
//! other side. [`Destination`](crate::receiver::Destination) is where the receiver's files go.

use crate::SMALL;
use crate::content;
use crate::parts::Parts;
use crate::source::{self, Pieces, SourcePiece};
use std::fs::File;
use std::io;
use wire::files::{BLOCK, Batch, Block, FILES_AT_ONCE, FileAttributes, FileStep, Sum};

pub trait SourceFile: Copy {
    type Fault;

    fn id(&self) -> u32;

    fn bytes(&self) -> u64;

    fn attributes(&self) -> FileAttributes;

    fn open(&self) -> Result<File, Self::Fault>;

    /// Checks that the file, read with this result, is what was listed. If it may grow and has
    /// grown, returns the sum of its beginning, as long as it was when it was listed.
    fn check(&self, source: &File, read: io::Result<()>) -> Result<Option<Sum>, Self::Fault>;

    /// Appends its whole content; returns whether it has grown.
    fn read(&self, content: &mut Vec<u8>) -> Result<bool, Self::Fault> {
        read_whole(*self, content)
    }
}

/// Appends as much as the file had when it was listed; returns whether it has grown.
pub fn read_whole<F: SourceFile>(file: F, content: &mut Vec<u8>) -> Result<bool, F::Fault> {
    let source = file.open()?;
    let begin = content.len();
    content.resize(begin + usize::try_from(file.bytes()).unwrap_or(0), 0);
    let rest = &mut content[begin..];
    let read = source::read_at(&source, 0, rest);
    let read = read.and_then(|count| {
        if count == rest.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    });
    Ok(file.check(&source, read)?.is_some())
}

pub trait Outlet<F: SourceFile> {
    type Broken;

    /// `body` is sent behind the step.
    fn step(&mut self, step: FileStep, body: &[u8]) -> Result<(), Self::Broken>;

    /// Some of the files may have failed.
    fn batch(&mut self, files: &[F], read: SmallFiles<F::Fault>) -> Result<(), Self::Broken> {
        for (index, fault) in read.failed {
            self.abandon(files[index], fault)?;
        }
        let batch = Batch {
            files: read.files,
            content: content::plain(&read.content),
        };
        self.step(FileStep::Batch(batch), &read.content)
    }

    /// Sends [`FileStep::Open`]; returns the parts that the receiver has.
    fn open(&mut self, file: F, source: &File) -> Result<Parts, Self::Broken>;

    /// The content is in the buffer unless the piece is all zeros.
    fn write(
        &mut self,
        file: F,
        _source: &File,
        piece: &SourcePiece,
        buffer: &mut Vec<u8>,
    ) -> Result<(), Self::Broken> {
        let (content, body) = if piece.is_zeros {
            (content::zeros(piece.length), &[][..])
        } else {
            (content::plain(buffer), &buffer[..])
        };
        let block = Block {
            id: file.id(),
            offset: piece.offset,
            content,
        };
        self.step(FileStep::Write(block), body)
    }

    fn wants(&mut self, id: u32) -> bool;

    /// Waits for pieces that are read later; returns why reading failed.
    fn read_all(&mut self) -> Result<io::Result<()>, Self::Broken> {
        Ok(Ok(()))
    }

    fn abandon(&mut self, file: F, fault: F::Fault) -> Result<(), Self::Broken>;
}

pub struct SmallFiles<T> {
    /// The files that were read completely.
    pub files: Vec<FileAttributes>,
    /// Their content, one file after another.
    pub content: Vec<u8>,
    /// The indices of unreadable files, and why.
    pub failed: Vec<(usize, T)>,
    /// The indices of the files that have grown.
    grown: Vec<usize>,
}

/// Sends all small files first, then the others one after another.
pub fn send<F: SourceFile, O: Outlet<F>>(outlet: &mut O, files: &[F]) -> Result<(), O::Broken> {
    let (small, mut large): (Vec<F>, Vec<F>) = files.iter().partition(|file| file.bytes() <= SMALL);
    for files in groups(&small) {
        let read = read_small(files);
        // only a commit has the sum by which the receiver checks the beginning
        large.extend(read.grown.iter().map(|index| files[*index]));
        outlet.batch(files, read)?;
    }
    let mut buffer = Vec::new();
    large
        .into_iter()
        .try_for_each(|file| send_large(outlet, file, &mut buffer))
}

/// Each group is for one message.
fn groups<F: SourceFile>(mut rest: &[F]) -> impl Iterator<Item = &[F]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |file: &&F| {
            bytes += file.bytes();
            bytes <= BLOCK
        };
        let count = rest.iter().take(FILES_AT_ONCE).take_while(fits).count();
        let (now, later) = rest.split_at(count.max(1).min(rest.len()));
        rest = later;
        Some(now).filter(|now| !now.is_empty())
    })
}

fn read_small<F: SourceFile>(files: &[F]) -> SmallFiles<F::Fault> {
    let mut all = SmallFiles {
        files: Vec::new(),
        content: Vec::new(),
        failed: Vec::new(),
        grown: Vec::new(),
    };
    for (index, file) in files.iter().enumerate() {
        let before = all.content.len();
        let read = file.read(&mut all.content);
        if !matches!(read, Ok(false)) {
            all.content.truncate(before);
        }
        match read {
            Ok(false) => all.files.push(file.attributes()),
            Ok(true) => all.grown.push(index),
            Err(fault) => all.failed.push((index, fault)),
        }
    }
    all
}

fn send_large<F: SourceFile, O: Outlet<F>>(
    outlet: &mut O,
    file: F,
    buffer: &mut Vec<u8>,
) -> Result<(), O::Broken> {
    let source = match file.open() {
        Ok(source) => source,
        Err(fault) => return outlet.abandon(file, fault),
    };
    let mut read = Ok(());
    for (begin, end) in outlet.open(file, &source)?.missing(file.bytes()) {
        let mut pieces = Pieces::new(&source, begin, end - begin);
        while read.is_ok() && outlet.wants(file.id()) {
            match pieces.read_next(buffer) {
                Ok(Some(piece)) => outlet.write(file, &source, &piece, buffer)?,
                Ok(None) => break,
                Err(error) => read = Err(error),
            }
        }
    }
    let read = outlet.read_all()?.and(read);
    match file.check(&source, read) {
        Ok(sum) => {
            let id = file.id();
            outlet.step(FileStep::Commit { id, sum }, &[])
        }
        Err(fault) => outlet.abandon(file, fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file whose content is known, or that cannot be read.
    #[derive(Clone, Copy)]
    struct Known(u32, Result<&'static str, &'static str>);

    impl SourceFile for Known {
        type Fault = &'static str;

        fn id(&self) -> u32 {
            self.0
        }

        fn bytes(&self) -> u64 {
            self.1.map_or(1000, |content| content.len() as u64)
        }

        fn attributes(&self) -> FileAttributes {
            FileAttributes {
                id: self.0,
                dst: "/w/a".into(),
                bytes: self.bytes(),
                mode: 0o644,
                mtime: None,
            }
        }

        fn open(&self) -> Result<File, &'static str> {
            Err("not a file")
        }

        fn check(&self, _: &File, _: io::Result<()>) -> Result<Option<Sum>, &'static str> {
            Ok(None)
        }

        fn read(&self, content: &mut Vec<u8>) -> Result<bool, &'static str> {
            content.extend_from_slice(self.1?.as_bytes());
            Ok(false)
        }
    }

    #[test]
    fn a_message_has_the_files_that_could_be_read_and_names_the_others() {
        let long = "x".repeat(BLOCK as usize - 3).leak();
        let files = [Ok(""), Ok(&*long), Err("it is missing"), Ok("hello")];
        let files: Vec<Known> = (0..).zip(files).map(|(id, read)| Known(id, read)).collect();
        let read: Vec<_> = groups(&files).map(read_small).collect();
        let ids = read
            .iter()
            .map(|read| read.files.iter().map(|file| file.id));
        let ids: Vec<Vec<u32>> = ids.map(Iterator::collect).collect();
        assert_eq!(ids, [vec![0, 1], vec![3]]);
        let failed: Vec<_> = read.iter().flat_map(|read| &read.failed).collect();
        assert_eq!(failed, [&(0, "it is missing")]);
        let contents: Vec<&[u8]> = read.iter().map(|read| &read.content[..]).collect();
        assert_eq!(contents, [long.as_bytes(), b"hello"]);
    }
}
