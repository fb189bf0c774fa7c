//! One-dimensional arrays of integers, as numpy.save writes them.

#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub data_offset: usize,
    /// Bytes of a number: 1, 2, 4 or 8, little-endian.
    pub width: usize,
    pub count: u64,
}

pub const MAGIC: &[u8] = b"\x93NUMPY";

/// Parses a header of numpy's format 1, 2 or 3 (numpy/lib/format.py).
pub fn header(head: &[u8]) -> Result<Header, String> {
    let not_one = || "is not an .npy file (wrong first bytes)".to_owned();
    let rest = head.strip_prefix(MAGIC).ok_or_else(not_one)?;
    let (from, length) = match *rest {
        [1, _, a, b, ..] => (10, u32::from(u16::from_le_bytes([a, b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d])),
        _ => return Err(not_one()),
    };
    let data_offset = from + length as usize;
    let text = head.get(from..data_offset).ok_or_else(not_one)?;
    let text = String::from_utf8_lossy(text);
    let after = |key: &str| text.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = after("'descr':").and_then(|rest| rest.split('\'').nth(1));
    let width = match kind.unwrap_or_default() {
        "|i1" | "|u1" | "|b1" => 1,
        "<i2" | "<u2" => 2,
        "<i4" | "<u4" => 4,
        "<i8" | "<u8" => 8,
        other => return Err(format!("has numbers of type {other}, and not integers")),
    };
    let shape = after("'shape':").and_then(|rest| rest.strip_prefix('(')?.split_once(')'));
    let shape = shape.map_or("", |(shape, _)| shape);
    let count = shape
        .trim_end_matches([',', ' '])
        .parse()
        .map_err(|_| format!("has the shape ({shape}), and not one axis"))?;
    Ok(Header {
        data_offset,
        width,
        count,
    })
}

impl Header {
    pub fn check(&self, bytes: u64) -> Result<(), String> {
        let numbers = self.count.checked_mul(self.width as u64);
        let whole = numbers.and_then(|numbers| numbers.checked_add(self.data_offset as u64));
        if whole == Some(bytes) {
            Ok(())
        } else {
            Err(format!(
                "has {bytes} bytes, but its header describes another size"
            ))
        }
    }
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
                (got.width, got.count, got.data_offset),
                (4, 12, text.len() + 8 + 2 * version as usize)
            );
        }
        let wrong = |from: &str, to: &str| header(&array(1, &text.replace(from, to))).unwrap_err();
        assert!(wrong("<i4", "<f4").contains("type <f4"));
        assert!(wrong("12,", "3, 4").contains("shape (3, 4)"));
        assert!(wrong("12,", "").contains("shape ()"));
        let no_header = [&array(1, text)[..20], &array(9, text), b"[1, 2]"];
        for head in no_header {
            assert!(header(head).unwrap_err().contains("is not an .npy file"));
        }
        let header = header(&array(1, text)).unwrap();
        let whole = (header.data_offset + 48) as u64;
        assert!(header.check(whole).is_ok() && header.check(whole - 1).is_err());
    }
}
