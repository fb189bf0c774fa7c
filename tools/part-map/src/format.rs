//! Checks how files of a partition begin, which is enough to recognise a file that was cut, a
//! pointer of git-lfs, or a file in the place of another.

use partition::{config, dgl_file};

/// Enough of a file for every check here: numpy pads its header to a multiple of 64 bytes, and a
/// shape of one number is short.
pub const HEAD: usize = 1024;

/// The format that a file must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What `dgl.save_graphs` writes (src/graph/serialize/graph_serialize.h, 0.5 to 2.4).
    Graph,
    /// What DGL's `save_tensors` writes (src/graph/serialize/tensor_serialize.cc, 0.5 to 2.4).
    Tensors,
    /// What `torch.save` writes: a zip archive.
    Torch,
    /// An array of this many integers.
    Npy(u64),
    /// Anything but an empty file; for unknown keys.
    NotEmpty,
    /// Anything.
    Any,
}

const ZIP: [u8; 4] = *b"PK\x03\x04";

impl Format {
    /// The format of the file under a key of a part.
    pub fn of_key(key: &str) -> Format {
        match key {
            config::DGL_GRAPH => Format::Graph,
            config::GRAPHBOLT_GRAPH => Format::Torch,
            key if config::FEATURES.contains(&key) => Format::Tensors,
            _ => Format::NotEmpty,
        }
    }

    /// Checks the first [`HEAD`] bytes of a file and its length. The error has what is wrong, and
    /// the cure.
    pub fn check(self, head: &[u8], bytes: u64) -> Result<(), (String, &'static str)> {
        let again = "run partition_graph again, or fetch the file whole";
        if self != Format::Any && bytes == 0 {
            return Err((
                "is empty: partitioning did not end, or its disk was full".to_owned(),
                "run partition_graph again",
            ));
        }
        let begins = |magic: &[u8], what: &str| match head.starts_with(magic) {
            true => Ok(()),
            false => Err((format!("does not begin as {what} does"), again)),
        };
        match self {
            Format::Graph => begins(
                &dgl_file::GRAPH_FILE.to_le_bytes(),
                "a graph that DGL saved",
            ),
            Format::Tensors => begins(
                &dgl_file::TENSOR_FILE.to_le_bytes(),
                "a file of tensors that DGL saved",
            ),
            Format::Torch => begins(&ZIP, "a file that torch saved"),
            Format::Npy(ids) => npy(head, bytes, ids).map_err(|problem| (problem, again)),
            Format::NotEmpty | Format::Any => Ok(()),
        }
    }
}

/// Checks a header of numpy's format 1, 2 or 3 (numpy/lib/format.py): an integer type that torch
/// can read, and the right length.
fn npy(head: &[u8], bytes: u64, ids: u64) -> Result<(), String> {
    let not_one = || "does not begin as an .npy file does".to_owned();
    let rest = head.strip_prefix(b"\x93NUMPY").ok_or_else(not_one)?;
    let (begin, length) = match *rest {
        [1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([a, b]))),
        [2 | 3, _, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        _ => return Err(not_one()),
    };
    let end = begin + length;
    let header = head
        .get(begin..end)
        .and_then(|text| std::str::from_utf8(text).ok())
        .ok_or_else(not_one)?;
    let value = |key: &str| Some(header.split_once(key)?.1.split_once(':')?.1.trim_start());
    let descr = value("'descr'")
        .and_then(|text| text.strip_prefix('\'')?.split_once('\''))
        .map_or("", |(descr, _)| descr);
    let width = match descr
        .strip_prefix(['<', '|'])
        .and_then(|kind| kind.strip_prefix(['i', 'u']))
    {
        Some(width @ ("1" | "2" | "4" | "8")) => u64::from(width.as_bytes()[0] - b'0'),
        _ => {
            return Err(format!(
                "holds numbers of type {descr:?}, where partitions are integers"
            ));
        }
    };
    let shape = value("'shape'")
        .and_then(|text| text.strip_prefix('(')?.split_once(')'))
        .map_or("", |(shape, _)| shape);
    if shape.trim_end_matches([',', ' ']).parse() != Ok(ids) {
        return Err(format!(
            "has the shape ({shape}), where the config says {ids}"
        ));
    }
    match ids
        .checked_mul(width)
        .and_then(|data| data.checked_add(end as u64))
        == Some(bytes)
    {
        true => Ok(()),
        false => Err(format!(
            "is {bytes} bytes long, which is not what its header says"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(descr: &str, shape: &str) -> Vec<u8> {
        let mut text =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
        text += &" ".repeat(117 - text.len());
        [
            b"\x93NUMPY\x01\x00",
            &118u16.to_le_bytes()[..],
            text.as_bytes(),
            b"\n",
        ]
        .concat()
    }

    #[test]
    fn files_begin_as_their_format_does() {
        let graph: &[u8] = b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd\x02\0";
        let tensors: &[u8] = b"\x3f\x44\xa2\x3f\xbe\x9f\x5a\xdd\0\0";
        let table = [
            (Format::Graph, graph, None),
            (Format::Tensors, tensors, None),
            (Format::Torch, b"PK\x03\x04\0\0\x08\x08", None),
            (Format::NotEmpty, b"x", None),
            (Format::Any, b"", None),
            (
                Format::Graph,
                tensors,
                Some("does not begin as a graph that DGL saved does"),
            ),
            (
                Format::Tensors,
                graph,
                Some("does not begin as a file of tensors that DGL saved does"),
            ),
            (
                Format::Torch,
                graph,
                Some("does not begin as a file that torch saved does"),
            ),
            (
                Format::Graph,
                b"version https://git-lfs.github.com/spec/v1",
                Some("does not begin as a graph"),
            ),
            (
                Format::Graph,
                &graph[..5],
                Some("does not begin as a graph"),
            ),
            (Format::Graph, b"", Some("is empty")),
            (Format::NotEmpty, b"", Some("is empty")),
        ];
        for (format, head, problem) in table {
            let got = format
                .check(head, head.len() as u64)
                .err()
                .map(|(problem, _)| problem);
            assert!(
                got.as_deref()
                    .unwrap_or_default()
                    .starts_with(problem.unwrap_or_default())
                    && got.is_some() == problem.is_some(),
                "{got:?}"
            );
        }
    }

    #[test]
    fn npy_headers() {
        let table = [
            (header("<i8", "120,"), 128 + 960, None),
            (header("<i4", "120,"), 128 + 480, None),
            (header("|u1", "120,"), 128 + 120, None),
            (header("<i8", "120,"), 128 + 959, Some("is 1087 bytes long")),
            (
                header("<i8", "119,"),
                128 + 952,
                Some("has the shape (119,), where the config says 120"),
            ),
            (
                header("<i8", "120, 1"),
                128 + 960,
                Some("has the shape (120, 1)"),
            ),
            (header("<i8", ""), 128 + 8, Some("has the shape ()")),
            (
                header("<f8", "120,"),
                128 + 960,
                Some("holds numbers of type \"<f8\""),
            ),
            (
                header(">i8", "120,"),
                128 + 960,
                Some("holds numbers of type \">i8\""),
            ),
            (
                b"\x93NUMPY\x09\0".to_vec(),
                8,
                Some("does not begin as an .npy file"),
            ),
            (
                b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec(),
                12,
                Some("does not begin as an .npy file"),
            ),
            (
                b"[1, 2]".to_vec(),
                6,
                Some("does not begin as an .npy file"),
            ),
        ];
        for (head, bytes, problem) in table {
            let got = Format::Npy(120)
                .check(&head, bytes)
                .err()
                .map(|(problem, _)| problem);
            assert!(
                got.as_deref()
                    .unwrap_or_default()
                    .starts_with(problem.unwrap_or_default())
                    && got.is_some() == problem.is_some(),
                "{got:?}"
            );
        }
    }
}
