//! Files here: written under a name of our own beside the one they will have, and renamed when they are whole.

use crate::plan::Item;
use common::cksum;
use common::listing::There;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// A host's file that is worth going on with where it broke off.
pub const LARGE: u64 = 16 << 20;
const CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_XZ);

/// Where an item is while it is not whole: the same name for the same version of the file.
fn partial(item: &Item) -> PathBuf {
    let version = format!("{} {:?}", item.there.bytes, item.there.stat);
    let name = [item.dst.as_os_str().as_bytes(), version.as_bytes()].concat();
    item.dst.with_file_name(format!(".part-pull.{:016x}", CRC64.checksum(&name)))
}

/// Checksum and size of what is here of a file; size 0 where there is nothing.
pub fn begun(item: &Item) -> io::Result<(u32, u64)> {
    match File::open(partial(item)) {
        Ok(file) => cksum::of(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((0, 0)),
        Err(error) => Err(error),
    }
}

/// Writes what comes behind the first `offset` bytes; how many came. A large file that breaks off stays for the next run.
pub fn write(item: &Item, offset: u64, source: &mut dyn Read) -> io::Result<u64> {
    if let Some(folder) = item.dst.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = partial(item);
    let mut file = OpenOptions::new().create(true).append(offset > 0).write(true).truncate(offset == 0).open(&partial)?;
    let mut buffer = vec![0; 128 << 10];
    let mut came = 0u64;
    let copied = loop {
        match source.read(&mut buffer) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                if let Err(error) = file.write_all(&buffer[..count]) {
                    break Err(error);
                }
                came += count as u64;
            }
            Err(error) => break Err(error),
        }
    };
    let short = || io::Error::other("it did not arrive whole");
    let whole = copied.and_then(|()| if offset + came == item.there.bytes { Ok(()) } else { Err(short()) });
    if whole.is_err() && item.there.bytes < LARGE {
        fs::remove_file(&partial)?;
    }
    whole.map(|()| came)
}

/// Gives it its mode, its time and its name.
pub fn finish(item: &Item) -> io::Result<()> {
    let partial = partial(item);
    if let There { stat: Some(stat), .. } = item.there {
        let file = File::open(&partial)?;
        file.set_permissions(Permissions::from_mode(stat.mode & 0o777))?;
        let after = Duration::new(u64::try_from(stat.mtime.0).unwrap_or(0), stat.mtime.1);
        file.set_modified(UNIX_EPOCH + after)?;
    }
    fs::rename(&partial, &item.dst)
}

/// Takes away what was begun.
pub fn discard(item: &Item) {
    let _ = fs::remove_file(partial(item));
}
