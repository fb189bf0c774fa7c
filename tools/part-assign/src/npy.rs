//! One-dimensional arrays of integers, as numpy.save writes them.

/// The header of an array.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The offset of the numbers in the file.
    pub at: usize,
    /// The bytes of a number: 1, 2, 4 or 8, little-endian.
    pub width: usize,
    /// How many numbers there are.
    pub count: u64,
}

/// The first bytes of an .npy file.
pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Parses the header in the first bytes of a file; the error tells what is wrong with it, in words.
pub fn header(head: &[u8]) -> Result<Header, String> {
    let cut = || "is cut off".to_owned();
    let (from, length) = match head.get(6).ok_or_else(cut)? {
        1 => (
            10,
            head.get(8..10)
                .map(|two| u32::from(u16::from_le_bytes([two[0], two[1]]))),
        ),
        _ => {
            let four = head.get(8..12).and_then(|four| four.try_into().ok());
            (12, four.map(u32::from_le_bytes))
        }
    };
    let at = from + length.ok_or_else(cut)? as usize;
    let text = head.get(from..at).ok_or_else(cut)?;
    let text = String::from_utf8_lossy(text);
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = after("'descr':")
        .and_then(|rest| rest.split('\'').nth(1))
        .unwrap_or_default();
    let width = match kind {
        "|i1" | "|u1" | "|b1" => 1,
        "<i2" | "<u2" => 2,
        "<i4" | "<u4" => 4,
        "<i8" | "<u8" => 8,
        other => return Err(format!("has numbers of type {other}, and not integers")),
    };
    let shape = after("'shape':").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let shape = shape
        .map_or("", |(shape, _)| shape)
        .trim()
        .trim_end_matches(',');
    let count = shape
        .parse()
        .map_err(|_| format!("has the shape ({shape}), and not one axis"))?;
    Ok(Header { at, width, count })
}

/// The number in some bytes, if it can be that of a partition.
pub fn number(bytes: &[u8]) -> Option<u32> {
    let mut whole = [0; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    u32::try_from(u64::from_le_bytes(whole)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(version: u8, text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len()).unwrap().to_le_bytes();
        let more: &[u8] = if version == 1 { &[] } else { &[0, 0] };
        [MAGIC, &[version, 0], &length, more, text.as_bytes()].concat()
    }

    #[test]
    fn what_headers_say() {
        let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (12,), }  \n";
        for version in [1, 2] {
            let got = header(&array(version, text)).unwrap();
            assert_eq!(
                (got.width, got.count, got.at),
                (4, 12, text.len() + 8 + 2 * version as usize)
            );
        }
        let wrong = |from: &str, to: &str| header(&array(1, &text.replace(from, to))).unwrap_err();
        assert!(wrong("<i4", "<f4").contains("type <f4"));
        assert!(wrong("12,", "3, 4").contains("shape (3, 4)"));
        assert_eq!(header(&array(1, text)[..20]).unwrap_err(), "is cut off");
        assert_eq!(
            [number(&[1, 1]), number(&[255; 8]), number(&[7])],
            [Some(257), None, Some(7)]
        );
    }
}
