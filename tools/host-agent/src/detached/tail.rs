//! Reads a file that grows.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;

/// How much is read at once.
const BLOCK: usize = 64 << 10;

/// Reads a file that grows from its beginning. It may not exist yet.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    pub fn new(path: PathBuf) -> Tail {
        Tail { path, file: None }
    }

    /// The next bytes; empty if there are none.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let named = |error| io::Error::other(format!("{}: {error}", self.path.display()));
        let file = match &mut self.file {
            Some(file) => file,
            None => match File::open(&self.path) {
                Ok(file) => self.file.insert(file),
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(named(error)),
            },
        };
        let mut block = vec![0; BLOCK];
        let count = file.read(&mut block).map_err(named)?;
        block.truncate(count);
        Ok(block)
    }
}
