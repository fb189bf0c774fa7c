//! Checks how a partition's files begin, to recognize a truncated file, a git-lfs pointer or
//! another format.

use crate::{config, npy};

/// Enough for every check here: numpy pads its header to a multiple of 64 bytes, and a shape of one
/// number is short.
pub const HEAD: u64 = 1024;

/// The first bytes of files of `dgl.save_graphs` and DGL's `save_tensors`.
const GRAPH_FILE: u64 = 0xdd2e_4ff0_46b4_a13f;
const TENSOR_FILE: u64 = 0xdd5a_9fbe_3fa2_443f;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// What `dgl.save_graphs` writes (src/graph/serialize/graph_serialize.h, 0.5 to 2.4).
    Graph,
    /// What DGL's `save_tensors` writes (src/graph/serialize/tensor_serialize.cc, 0.5 to 2.4).
    Tensors,
    /// What `torch.save` writes: a zip archive.
    Torch,
    Npy(u64),
    /// For unknown keys.
    NotEmpty,
    Any,
}

impl FileFormat {
    pub fn of_key(key: &str) -> FileFormat {
        match key {
            config::DGL_GRAPH => FileFormat::Graph,
            config::GRAPHBOLT_GRAPH => FileFormat::Torch,
            key if config::FEATURES.contains(&key) => FileFormat::Tensors,
            _ => FileFormat::NotEmpty,
        }
    }

    /// What is wrong with the first [`HEAD`] bytes of a file, or its length.
    pub fn problem(self, head: &[u8], bytes: u64) -> Option<String> {
        if self != FileFormat::Any && bytes == 0 {
            return Some("is empty: partitioning did not finish, or its disk was full".to_owned());
        }
        let (magic, what): (&[u8], _) = match self {
            FileFormat::Graph => (&GRAPH_FILE.to_le_bytes(), "graph file of DGL"),
            FileFormat::Tensors => (&TENSOR_FILE.to_le_bytes(), "tensor file of DGL"),
            FileFormat::Torch => (b"PK\x03\x04", "file that torch saved"),
            FileFormat::Npy(ids) => return problem_of_array(head, bytes, ids).err(),
            FileFormat::NotEmpty | FileFormat::Any => return None,
        };
        (!head.starts_with(magic)).then(|| format!("is not a {what} (wrong first bytes)"))
    }
}

fn problem_of_array(head: &[u8], bytes: u64, ids: u64) -> Result<(), String> {
    let header = npy::header(head)?;
    if header.count == ids {
        header.check(bytes)
    } else {
        Err(format!(
            "has {} numbers, but the config has {ids}",
            header.count
        ))
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
            (FileFormat::Graph, graph, None),
            (FileFormat::Tensors, tensors, None),
            (FileFormat::Torch, b"PK\x03\x04\0\0\x08\x08", None),
            (FileFormat::NotEmpty, b"x", None),
            (FileFormat::Any, b"", None),
            (
                FileFormat::Graph,
                tensors,
                Some("is not a graph file of DGL (wrong"),
            ),
            (
                FileFormat::Tensors,
                graph,
                Some("is not a tensor file of DGL"),
            ),
            (
                FileFormat::Torch,
                graph,
                Some("is not a file that torch saved"),
            ),
            (
                FileFormat::Graph,
                b"version https://git-lfs.github.com/spec/v1",
                Some("is not a graph file of DGL"),
            ),
            (
                FileFormat::Graph,
                &graph[..5],
                Some("is not a graph file of DGL"),
            ),
            (FileFormat::Graph, b"", Some("is empty")),
            (FileFormat::NotEmpty, b"", Some("is empty")),
        ];
        for (format, head, problem) in table {
            let got = format.problem(head, head.len() as u64);
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
            (header("<i8", "120,"), 128 + 959, Some("has 1087 bytes")),
            (
                header("<i8", "119,"),
                128 + 952,
                Some("has 119 numbers, but the config has 120"),
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
                Some("has numbers of type <f8"),
            ),
            (
                header(">i8", "120,"),
                128 + 960,
                Some("has numbers of type >i8"),
            ),
            (b"\x93NUMPY\x09\0".to_vec(), 8, Some("is not an .npy file")),
            (
                b"\x93NUMPY\x02\0\xff\xff\xff\xff".to_vec(),
                12,
                Some("is not an .npy file"),
            ),
            (b"[1, 2]".to_vec(), 6, Some("is not an .npy file")),
        ];
        for (head, bytes, problem) in table {
            let got = FileFormat::Npy(120).problem(&head, bytes);
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
