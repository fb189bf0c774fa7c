//! Checksums as POSIX cksum makes them: every host but a bare busybox has it, and it is far quicker than a link.

use std::io::{self, Read};

/// This CRC over the bytes and then over their number; sixteen bytes a step.
const CKSUM: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_CKSUM);

/// The checksum of all that can be read, and how much that is.
pub fn of(mut source: impl Read) -> io::Result<(u32, u64)> {
    let (mut digest, mut buffer, mut bytes) = (CKSUM.digest(), vec![0; 64 << 10], 0u64);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                digest.update(&buffer[..count]);
                bytes += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // the number of bytes, least significant first, without leading zeros (POSIX, cksum)
    let mut length = bytes;
    while length > 0 {
        digest.update(&[(length & 0xff) as u8]);
        length >>= 8;
    }
    Ok((digest.finalize(), bytes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn checksums_are_those_of_cksum() {
        assert_eq!(super::of(&b""[..]).unwrap(), (4_294_967_295, 0));
        assert_eq!(super::of(&b"hello\n"[..]).unwrap(), (3_015_617_425, 6));
    }
}
