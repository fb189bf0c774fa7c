//! Files here: written under a name of our own beside the one they will have, and renamed when they are whole.

use crate::plan::Item;
use common::cksum;
use common::listing::There;
use common::remote::lanes::BLOCK;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A host's file that is worth going on with where it broke off.
pub const LARGE: u64 = 16 << 20;
const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

/// A folder into which nobody else brings files: two that write the same file under the same name would give it that name half done.
pub struct Claim {
    path: PathBuf,
    /// None on a file system that has no locks.
    _lock: Option<Flock<File>>,
}

/// Takes a folder, which is made; `None` while another part-pull has it.
pub fn claim(folder: &Path) -> io::Result<Option<Claim>> {
    fs::create_dir_all(folder)?;
    let path = folder.join(".part-pull.lock");
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => {
            // the one that had it takes its file away
            let mine = lock.metadata()?;
            let same = fs::metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (mine.dev(), mine.ino()));
            Ok(same.then_some(Claim { path, _lock: Some(lock) }))
        }
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err(_) => Ok(Some(Claim { path, _lock: None })),
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Where an item is while it is not whole: the same name for the same version of the file.
fn partial(item: &Item) -> PathBuf {
    let version = format!("{} {:?}", item.there.bytes, item.there.stat);
    let name = [item.dst.as_os_str().as_bytes(), version.as_bytes()].concat();
    item.dst.with_file_name(format!(".part-pull.{:016x}", CRC64.checksum(&name)))
}

/// Beside it while several connections write it: how much of it is whole.
fn good(item: &Item) -> PathBuf {
    partial(item).with_extension("good")
}

/// Checksum and size of what is here of a file.
pub fn sum(item: &Item) -> io::Result<(u32, u64)> {
    cksum::of(File::open(partial(item))?)
}

/// The same of what is worth going on with: whole blocks.
pub fn begun(item: &Item) -> io::Result<(u32, u64)> {
    let file = File::open(partial(item))?;
    let bytes = file.metadata()?.len();
    let whole = match fs::read_to_string(good(item)) {
        // one that is empty was not written to its end, and stands for nothing
        Ok(text) => text.parse().unwrap_or(0).min(bytes),
        Err(_) => bytes,
    };
    cksum::of(file.take(whole - whole % BLOCK))
}

/// Opens what an item is written to; the first `offset` bytes are there and stay.
pub fn open(item: &Item, offset: u64) -> io::Result<File> {
    if let Some(folder) = item.dst.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(partial(item))?;
    file.set_len(offset)?;
    remove(&good(item))?;
    Ok(file)
}

/// From here on several connections write behind `offset`, until all of it [`joined`].
pub fn parallel(item: &Item, offset: u64) -> io::Result<()> {
    fs::write(good(item), offset.to_string())
}

/// What several connections wrote is whole.
pub fn joined(item: &Item) -> io::Result<()> {
    remove(&good(item))
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Writes so many bytes from `offset` on.
pub fn write(file: &File, offset: u64, length: u64, source: &mut dyn Read) -> io::Result<()> {
    let mut buffer = vec![0; 128 << 10];
    let (mut source, mut at) = (source.take(length), offset);
    loop {
        match source.read(&mut buffer)? {
            0 if at == offset + length => return Ok(()),
            0 => return Err(io::Error::other("it did not arrive whole")),
            count => {
                file.write_all_at(&buffer[..count], at)?;
                at += count as u64;
            }
        }
    }
}

/// Writes a small file; how many bytes came. Nothing stays of one that does not arrive.
pub fn write_small(item: &Item, source: &mut dyn Read) -> io::Result<u64> {
    let mut all = || {
        write(&open(item, 0)?, 0, item.there.bytes, source)?;
        match source.read(&mut [0])? {
            0 => Ok(item.there.bytes),
            _ => Err(io::Error::other("it became longer on the host")),
        }
    };
    all().inspect_err(|_| discard(item))
}

/// Gives it its mode, its time and its name.
pub fn finish(item: &Item) -> io::Result<()> {
    let partial = partial(item);
    if let There { stat: Some(stat), .. } = item.there {
        let file = File::open(&partial)?;
        file.set_permissions(Permissions::from_mode(stat.mode & 0o777))?;
        if let Some(time) = stat.time() {
            file.set_modified(time)?;
        }
    }
    fs::rename(&partial, &item.dst)
}

/// Takes away what was begun.
pub fn discard(item: &Item) {
    let _ = fs::remove_file(partial(item));
}
