//! Reads the headers of DGL's own files. Their contents are skipped, so a file of hundreds of
//! gigabytes takes as long as a small one.
//!
//! The layout is that of DGL 0.5 to 2.4: src/graph/serialize/heterograph_serialize.cc for graphs,
//! tensor_serialize.cc for features. Numbers are little-endian.

use std::io::{self, BufReader, Read, Seek, SeekFrom};

/// How a file of `dgl.save_graphs` begins.
pub const GRAPH_FILE: u64 = 0xdd2e_4ff0_46b4_a13f;
/// How a file of DGL's `save_tensors` begins.
pub const TENSOR_FILE: u64 = 0xdd5a_9fbe_3fa2_443f;
const HETEROGRAPH: u64 = 0xdd58_9fbe_3522_4abf;
const META_GRAPH: u64 = 0xdd3c_5ffe_2004_6abf;
const UNIT_GRAPH: u64 = 0xdd2e_60f0_f6b4_a127;
const CSR: u64 = 0xdd6c_d312_05df_f127;
const COO: u64 = 0xdd61_ffd3_05df_f127;
const TENSOR: u64 = 0xdd5e_40f0_96b4_a13f;

/// The version of the layout of a graph file, which all these versions of DGL write.
const GRAPH_FILE_VERSION: u64 = 2;
/// The kind of a heterogeneous graph in a graph file; DGL has written no other kind since 0.5.
const HETEROGRAPH_KIND: u64 = 2;
/// The size to which the head of a graph file is padded.
const GRAPH_FILE_HEAD: u64 = 4096;

/// More features, types or relations than any graph has; a larger number is a broken file.
const MOST_ITEMS: u64 = 1 << 20;
/// Names are words; a larger number is a broken file.
const LONGEST_NAME: u64 = 1 << 16;
/// NumPy's own limit on dimensions.
const MOST_DIMENSIONS: i32 = 64;

/// The format of a sparse matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// Sources and destinations.
    Coo,
    /// Compressed by source.
    Csr,
    /// Compressed by destination.
    Csc,
}

/// The header of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The name; empty if it has none.
    pub name: String,
    /// The first dimension.
    pub rows: u64,
    /// The bytes of an element.
    pub width: u64,
    /// The bytes of the content.
    pub bytes: u64,
    /// The offset of the content in the file.
    pub at: u64,
}

/// The headers of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphFile {
    /// The sparse formats in the file, and the bytes of each.
    pub formats: Vec<(Sparse, u64)>,
    /// The bytes of an id in them.
    pub id_width: u64,
    /// The data of nodes.
    pub node_data: Vec<Tensor>,
    /// The data of edges.
    pub edge_data: Vec<Tensor>,
}

impl GraphFile {
    /// Reads the headers of a graph file with one graph; `size` is the file's.
    pub fn read(input: impl Read + Seek, size: u64) -> Result<GraphFile, String> {
        let mut input = Input::new(input, size);
        input.magic(GRAPH_FILE, "a graph file of DGL")?;
        let (version, kind, graphs) = (input.u64()?, input.u64()?, input.u64()?);
        if (version, kind, graphs) != (GRAPH_FILE_VERSION, HETEROGRAPH_KIND, 1) {
            return Err(format!(
                "holds {graphs} graphs of kind {kind}, in version {version} of the layout, and \
                 partitions are one of kind {HETEROGRAPH_KIND} in version {GRAPH_FILE_VERSION}"
            ));
        }
        input.seek(GRAPH_FILE_HEAD)?;
        let begin = input.u64()?;
        input.seek(begin)?;
        input.graph()
    }
}

/// Reads the headers of a file of named tensors, such as node_feat.dgl; `size` is the file's.
pub fn tensors(input: impl Read + Seek, size: u64) -> Result<Vec<Tensor>, String> {
    let mut input = Input::new(input, size);
    input.magic(TENSOR_FILE, "a tensor file of DGL")?;
    input.u64()?;
    input.named_tensors()
}

/// How many elements of a tensor are not zero. Its content is read, which takes time.
pub fn count_nonzero(mut input: impl Read + Seek, tensor: &Tensor) -> io::Result<u64> {
    input.seek(SeekFrom::Start(tensor.at))?;
    let mut rest = BufReader::with_capacity(1 << 20, input.take(tensor.bytes));
    let mut element = vec![0; usize::try_from(tensor.width.max(1)).unwrap_or(1)];
    let mut count = 0;
    for _ in 0..tensor.rows {
        rest.read_exact(&mut element)?;
        count += u64::from(element.iter().any(|byte| *byte != 0));
    }
    Ok(count)
}

/// A file that is read by its headers. Offsets beyond its end are not believed.
struct Input<R> {
    input: BufReader<R>,
    at: u64,
    size: u64,
}

impl<R: Read + Seek> Input<R> {
    fn new(input: R, size: u64) -> Input<R> {
        Input {
            input: BufReader::with_capacity(4096, input),
            at: 0,
            size,
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("byte {}: {what}", self.at)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.input
            .read_exact(&mut bytes)
            .map_err(|error| self.wrong(&error.to_string()))?;
        self.at += N as u64;
        Ok(bytes)
    }

    fn u64(&mut self) -> Result<u64, String> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, String> {
        self.bytes().map(i32::from_le_bytes)
    }

    fn magic(&mut self, wanted: u64, what: &str) -> Result<(), String> {
        match self.u64()? == wanted {
            true => Ok(()),
            false => Err(self.wrong(&format!("{what} does not begin so"))),
        }
    }

    fn count(&mut self) -> Result<u64, String> {
        match self.u64()? {
            count if count <= MOST_ITEMS => Ok(count),
            count => Err(self.wrong(&format!("{count} is not a number of items"))),
        }
    }

    fn seek(&mut self, to: u64) -> Result<(), String> {
        if to > self.size {
            return Err(self.wrong(&format!(
                "leads to byte {to}, and the file ends at {}",
                self.size
            )));
        }
        // relative, so that buffered bytes are used
        let distance = i64::try_from(to).unwrap_or(i64::MAX) - i64::try_from(self.at).unwrap_or(0);
        self.input
            .seek_relative(distance)
            .map_err(|error| self.wrong(&error.to_string()))?;
        self.at = to;
        Ok(())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        self.seek(self.at.saturating_add(bytes))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.u64()?;
        if length > LONGEST_NAME.min(self.size - self.at.min(self.size)) {
            return Err(self.wrong(&format!("{length} is not a length of a name")));
        }
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        self.input
            .read_exact(&mut text)
            .map_err(|error| self.wrong(&error.to_string()))?;
        self.at += length;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn tensor(&mut self, name: String) -> Result<Tensor, String> {
        self.magic(TENSOR, "a tensor")?;
        self.u64()?; // reserved
        self.u64()?; // the device
        let dimensions = self.i32()?;
        let [_, bits, lanes @ ..] = self.bytes::<4>()?;
        let width = u64::from(bits).div_ceil(8) * u64::from(u16::from_le_bytes(lanes));
        if !(0..=MOST_DIMENSIONS).contains(&dimensions) {
            return Err(self.wrong(&format!("{dimensions} is not a number of dimensions")));
        }
        let mut elements = Some(1u64);
        let mut rows = None;
        for _ in 0..dimensions {
            let dimension = self.u64()?;
            rows = rows.or(Some(dimension));
            elements = elements.and_then(|product| product.checked_mul(dimension));
        }
        let bytes = self.u64()?;
        if elements.and_then(|elements| elements.checked_mul(width)) != Some(bytes) {
            return Err(self.wrong(&format!("{bytes} bytes are not what the shape says")));
        }
        let tensor = Tensor {
            name,
            rows: rows.unwrap_or(1),
            width,
            bytes,
            at: self.at,
        };
        self.skip(bytes)?;
        Ok(tensor)
    }

    fn named_tensors(&mut self) -> Result<Vec<Tensor>, String> {
        (0..self.count()?)
            .map(|_| {
                let name = self.text()?;
                self.tensor(name)
            })
            .collect()
    }

    fn by_type(&mut self) -> Result<Vec<Tensor>, String> {
        let mut all = Vec::new();
        for _ in 0..self.count()? {
            all.extend(self.named_tensors()?);
        }
        Ok(all)
    }

    /// The bytes of a matrix of three tensors, and the width of an id.
    fn matrix(&mut self, magic: u64, flags: u64) -> Result<(u64, u64), String> {
        self.magic(magic, "a sparse matrix")?;
        self.skip(16)?; // rows and columns
        let tensors = [(); 3].map(|()| self.tensor(String::new()));
        let [first, second, data] = tensors;
        let (first, second, data) = (first?, second?, data?);
        self.skip(flags)?; // whether it is sorted
        Ok((first.bytes + second.bytes + data.bytes, first.width))
    }

    fn meta_graph(&mut self) -> Result<(), String> {
        self.magic(META_GRAPH, "the graph of the types")?;
        self.matrix(CSR, 1).map(|_| ())
    }

    fn relation(&mut self, graph: &mut GraphFile) -> Result<(), String> {
        self.magic(UNIT_GRAPH, "a relation")?;
        let code = self.u64()?;
        self.u64()?; // the formats that are allowed
        // before 0.7 a number, later a bit for each format
        let saved = match (code >> 32, code) {
            (0, 1) => 1,
            (0, 2) => 2,
            (0, 3) => 4,
            (0, _) => 0,
            (_, code) => code & 7,
        };
        if saved == 0 {
            return Err(self.wrong(&format!("{code:#x} is not a sparse format")));
        }
        for (bit, sparse, magic, flags) in [
            (1, Sparse::Coo, COO, 2),
            (2, Sparse::Csr, CSR, 1),
            (4, Sparse::Csc, CSR, 1),
        ] {
            if saved & bit == 0 {
                continue;
            }
            self.meta_graph()?;
            let (bytes, width) = self.matrix(magic, flags)?;
            graph.id_width = graph.id_width.max(width);
            match graph.formats.iter_mut().find(|(one, _)| *one == sparse) {
                Some((_, sum)) => *sum += bytes,
                None => graph.formats.push((sparse, bytes)),
            }
        }
        Ok(())
    }

    fn graph(&mut self) -> Result<GraphFile, String> {
        let mut graph = GraphFile::default();
        self.magic(HETEROGRAPH, "a graph")?;
        self.meta_graph()?;
        for _ in 0..self.count()? {
            self.relation(&mut graph)?;
        }
        let types = self.count()?;
        self.skip(types * 8)?; // nodes of each
        graph.node_data = self.by_type()?;
        graph.edge_data = self.by_type()?;
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");

    fn graph(version: &str) -> Vec<u8> {
        std::fs::read(format!("{FIXTURES}/{version}/part0/graph.dgl")).unwrap()
    }

    fn read(bytes: &[u8]) -> Result<GraphFile, String> {
        GraphFile::read(Cursor::new(bytes), bytes.len() as u64)
    }

    #[test]
    fn graphs_of_each_version() {
        // nodes, edges, and how many of them are the partition's own
        let table = [
            ("dgl-0.5.3-homo", 109, 229, 68),
            ("dgl-0.5.3-noshuffle", 112, 201, 65),
            ("dgl-0.6.1-hetero", 81, 367, 52),
            ("dgl-0.9.1-homo", 119, 293, 60),
            ("dgl-1.0.4-hetero", 100, 618, 51),
            ("dgl-1.0.4-homo", 117, 297, 61),
            ("dgl-1.1.3-homo", 118, 319, 66),
            ("dgl-2.1.0-graphbolt", 117, 308, 62),
            ("dgl-2.1.0-hetero", 100, 621, 48),
        ];
        for (version, nodes, edges, own) in table {
            let bytes = graph(version);
            let graph = read(&bytes).unwrap();
            let named = |data: &[Tensor], name: &str| {
                data.iter().find(|one| one.name == name).cloned().unwrap()
            };
            let inner = named(&graph.node_data, "inner_node");
            assert_eq!(inner.rows, nodes, "{version}");
            assert_eq!(
                named(&graph.edge_data, "inner_edge").rows,
                edges,
                "{version}"
            );
            assert_eq!(graph.formats, [(Sparse::Coo, edges * 16)], "{version}");
            assert_eq!(graph.id_width, 8);
            let found = count_nonzero(Cursor::new(&bytes), &inner).unwrap();
            assert_eq!(found, own, "{version}");
        }
    }

    #[test]
    fn features_of_two_types() {
        let bytes = std::fs::read(format!("{FIXTURES}/dgl-1.0.4-hetero/part0/node_feat.dgl"));
        let bytes = bytes.unwrap();
        let found = tensors(Cursor::new(&bytes), bytes.len() as u64).unwrap();
        let shown: Vec<(&str, u64, u64)> = found
            .iter()
            .map(|one| (one.name.as_str(), one.rows, one.bytes))
            .collect();
        assert_eq!(
            shown,
            [("user/features", 33, 528), ("item/features", 18, 288)]
        );
    }

    #[test]
    fn what_is_cut_or_changed_anywhere_is_refused_or_read() {
        let whole = graph("dgl-1.0.4-hetero");
        let end = read(&whole)
            .unwrap()
            .edge_data
            .last()
            .map(|one| one.at + one.bytes)
            .unwrap();
        for cut in 0..usize::try_from(end).unwrap() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
        // no byte may make it panic, or read for ever
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = read(&changed);
        }
    }
}
