//! Checksums of files here, as POSIX cksum makes them: every host has it, and it is far quicker than a link.

use crate::plan::Source;
use std::fs::File;
use std::io::{self, Read};

/// This CRC over the bytes and then over their number; sixteen bytes a step.
const CKSUM: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_CKSUM);

/// Of a whole source, if it can be read.
pub fn of(source: &Source) -> Option<u32> {
    match source {
        Source::Content(text) => sum(text.as_bytes()).ok(),
        Source::File(path) => sum(File::open(path).ok()?).ok(),
    }
}

/// Of all that can be read.
pub fn sum(mut source: impl Read) -> io::Result<u32> {
    let mut digest = CKSUM.digest();
    let mut buffer = vec![0; 64 << 10];
    let mut length = 0u64;
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                digest.update(&buffer[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // the number of bytes, least significant first, without leading zeros (POSIX, cksum)
    while length > 0 {
        digest.update(&[(length & 0xff) as u8]);
        length >>= 8;
    }
    Ok(digest.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_cksum() {
        assert_eq!(of(&Source::Content(String::new())), Some(4_294_967_295));
        assert_eq!(of(&Source::Content("hello\n".to_owned())), Some(3_015_617_425));
    }
}
