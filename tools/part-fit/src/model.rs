//! What a partition takes of a host, as DGL's servers load it. part-fit(1) has the formula with its
//! source, and what was predicted beside what was measured.

use crate::dgl_file::{GraphFile, Sparse, Tensor};
use record::python::Version;

/// What servers and trainers take before there is any data, measured with one build of torch for
/// processors alone; builds for CUDA take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Libraries and their data in files, which all processes of a host share.
    pub shared_bytes: u64,
    /// What each has of its own.
    pub own_bytes: u64,
}

/// What servers copy into shared memory of each node and edge, with the bytes that it has there
/// (RESERVED_FIELD_DTYPE in DGL's python/dgl/distributed/partition.py).
const RESERVED: [(&str, u64); 5] = [
    ("inner_node", 1),
    ("_ID", 8),
    ("inner_edge", 1),
    ("_ID", 8),
    ("_TYPE", 4),
];

/// What the description of a graph takes in shared memory (SHARED_MEM_METAINFO_SIZE_MAX in DGL's
/// src/graph/shared_mem_manager.h is 32 KiB), and the last pages of its arrays.
const DESCRIPTION_BYTES: u64 = 64 << 10;

/// A graph as it lies in its file and as a server keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Graph {
    /// DGL's own form.
    Dgl(Box<GraphFile>),
    /// Graphbolt's: it is loaded as it stands, and copied to shared memory as it stands.
    Graphbolt {
        /// The size of its file.
        bytes: u64,
    },
}

/// What of a server's memory its partition takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// What lies in /dev/shm once all is loaded: the server's, and mapped by all others.
    pub shm_bytes: u64,
    /// The most that the first server of the host has at once while it loads, /dev/shm included.
    pub peak_bytes: u64,
}

/// The content of a partition's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Of nodes.
    pub node_bytes: u64,
    /// Of edges.
    pub edge_bytes: u64,
}

/// What one form of a partition's graph, with its features, takes. `formats` are those that the
/// servers make; from DGL 0.9 on (`deferred`) features come one file after the other.
pub fn data(graph: &Graph, features: Features, formats: &[Sparse], deferred: bool) -> Data {
    let (loading, kept) = match graph {
        Graph::Dgl(file) => (loading(file, formats), shared(file, formats)),
        Graph::Graphbolt { bytes } => (2 * bytes, *bytes),
    };
    let Features {
        node_bytes,
        edge_bytes,
    } = features;
    let shm_bytes = kept + node_bytes + edge_bytes;
    // features are read as a whole, and then copied to shared memory one by one
    let peak_bytes = match deferred {
        true => loading
            .max(kept + 2 * node_bytes)
            .max(kept + node_bytes + 2 * edge_bytes),
        false => loading + 2 * (node_bytes + edge_bytes),
    };
    Data {
        shm_bytes,
        peak_bytes: peak_bytes.max(shm_bytes),
    }
}

/// The most that is there while the graph goes from its file into shared memory: what was read with
/// the formats that are made of it; or these with their copies in shared memory, when what is not
/// wanted has gone.
fn loading(file: &GraphFile, formats: &[Sparse]) -> u64 {
    let data: u64 = file
        .node_data
        .iter()
        .chain(&file.edge_data)
        .map(|one| one.bytes)
        .sum();
    let read: u64 = file.formats.iter().map(|(_, bytes)| bytes).sum();
    let is_read = |format: &&Sparse| file.formats.iter().any(|(read, _)| read == *format);
    let made: u64 = formats
        .iter()
        .filter(|format| !is_read(format))
        .map(|format| bytes_of(file, *format))
        .sum();
    let wanted: u64 = formats.iter().map(|format| bytes_of(file, *format)).sum();
    (data + read + made).max(data + wanted + shared(file, formats))
}

/// What the graph takes in shared memory: the formats, and what DGL needs of each node and edge.
fn shared(file: &GraphFile, formats: &[Sparse]) -> u64 {
    let [inner_node, node_id, inner_edge, edge_id, edge_type] = RESERVED;
    let kept = |data: &[Tensor], fields: &[(&str, u64)]| -> u64 {
        let width = |one: &Tensor| {
            let field = fields.iter().find(|(name, _)| *name == one.name);
            field.map_or(0, |(_, width)| *width)
        };
        data.iter().map(|one| one.rows * width(one)).sum()
    };
    let matrices: u64 = formats.iter().map(|format| bytes_of(file, *format)).sum();
    DESCRIPTION_BYTES
        + matrices
        + kept(&file.node_data, &[inner_node, node_id])
        + kept(&file.edge_data, &[inner_edge, edge_id, edge_type])
}

/// A sparse matrix as DGL makes it: sources and destinations; or where each row begins, the other
/// ends, and the ids of the edges.
fn bytes_of(file: &GraphFile, format: Sparse) -> u64 {
    let (nodes, edges) = (rows(&file.node_data), rows(&file.edge_data));
    match format {
        Sparse::Coo => 2 * edges * file.id_width,
        Sparse::Csr | Sparse::Csc => (nodes + 1 + 2 * edges) * file.id_width,
    }
}

/// How many nodes, or edges, a graph has; halo ones included.
pub fn rows(data: &[Tensor]) -> u64 {
    data.iter().map(|one| one.rows).max().unwrap_or(0)
}

/// Reads the formats of `--graph-format`, each once.
pub fn formats(list: &str) -> Vec<Sparse> {
    let named = [
        ("coo", Sparse::Coo),
        ("csr", Sparse::Csr),
        ("csc", Sparse::Csc),
    ];
    let words: Vec<&str> = list.split(',').collect();
    named
        .into_iter()
        .filter(|(name, _)| words.contains(name))
        .map(|(_, format)| format)
        .collect()
}

/// What a process takes that has imported DGL and torch and has no data yet. Where no version is
/// known, the larger.
pub fn process(version: Option<Version>) -> Process {
    const MB: u64 = 1_000_000;
    match version {
        Some(version) if version < (2, 0, 0) => Process {
            shared_bytes: 130 * MB,
            own_bytes: 163 * MB,
        },
        _ => Process {
            shared_bytes: 130 * MB,
            own_bytes: 265 * MB,
        },
    }
}

/// Whether servers of this DGL read features only when the graph is in shared memory (0.9 and
/// later; before, all is there at once).
pub fn defers_features(version: Option<Version>) -> bool {
    version.is_none_or(|version| version >= (0, 9, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of nodes and edges as partition_graph of DGL 1.0 writes them, in coo.
    fn graph(nodes: u64, edges: u64, types: bool) -> GraphFile {
        let tensor = |rows: u64| {
            move |(name, width): &(&str, u64)| Tensor {
                name: (*name).to_owned(),
                rows,
                width: *width,
                bytes: rows * width,
                at: 0,
            }
        };
        let with_types = if types { 1 } else { 0 };
        let of_nodes = [("_TYPE", 4), ("part_id", 8), ("inner_node", 1), ("_ID", 8)];
        let of_edges = [("_TYPE", 4), ("inner_edge", 1), ("_ID", 8)];
        GraphFile {
            formats: vec![(Sparse::Coo, 16 * edges)],
            id_width: 8,
            node_data: of_nodes[1 - with_types..]
                .iter()
                .map(tensor(nodes))
                .collect(),
            edge_data: of_edges[1 - with_types..]
                .iter()
                .map(tensor(edges))
                .collect(),
        }
    }

    /// What servers of DGL 1.0.4 took, as tests/bench/memory.sh measured it; part-fit(1) shows it.
    #[rustfmt::skip]
    const MEASURED: [(&str, &str, u64, u64, bool, u64, u64, u64, u64); 14] = [
        // graph, formats, nodes, edges, types, features of nodes and edges; /dev/shm, peak
        ("tiny", "csc", 989, 3_023, false, 8_447, 24, 126_976, 294_539_264),
        ("graph", "csc", 399_999, 4_494_687, false, 24, 24, 119_197_696, 534_220_800),
        ("graph", "coo", 399_999, 4_494_687, false, 24, 24, 115_994_624, 527_474_688),
        ("graph", "csr", 399_999, 4_494_687, false, 24, 24, 119_197_696, 534_286_336),
        ("graph", "csc,coo", 399_999, 4_494_687, false, 24, 24, 191_115_264, 678_539_264),
        ("nodes", "csc", 326_661, 300_244, false, 200_208_095, 24, 213_303_296, 710_057_984),
        ("edges", "csc", 99_993, 749_600, false, 24, 120_031_781, 140_513_280, 562_061_312),
        ("both", "csc", 198_192, 598_107, false, 79_836_895, 79_759_701, 177_963_008, 556_851_200),
        ("both", "coo", 198_192, 598_107, false, 79_836_895, 79_759_701, 176_373_760, 554_434_560),
        ("all", "csc", 300_000, 2_998_305, false, 59_944_895, 79_942_381, 219_983_872, 611_766_272),
        ("all", "csc,coo", 300_000, 2_998_305, false, 59_944_895, 79_942_381, 267_964_416,
            659_709_952),
        ("types", "csc", 399_795, 3_748_326, true, 48_040_970, 24, 163_569_664, 528_969_728),
        ("types", "csc,coo,csr", 399_795, 3_748_326, true, 48_040_970, 24, 286_715_904,
            778_092_544),
        ("typed-edges", "csc", 199_682, 1_503_075, true, 24, 120_284_233, 167_301_120, 586_784_768),
    ];

    #[test]
    fn what_servers_took() {
        let process = process(Some((1, 0, 4)));
        for (name, list, nodes, edges, types, node_bytes, edge_bytes, shm, peak) in MEASURED {
            let features = Features {
                node_bytes,
                edge_bytes,
            };
            let graph = Graph::Dgl(Box::new(graph(nodes, edges, types)));
            let found = data(&graph, features, &formats(list), true);
            let said = process.shared_bytes + process.own_bytes + found.peak_bytes;
            let error = said as f64 / peak as f64 - 1.0;
            assert!((-0.05..0.10).contains(&error), "{name} {list}: {error}");
            // where a page counts, it is a little more
            let more = found.shm_bytes.checked_sub(shm);
            assert!(
                more.is_some_and(|more| more < 1 << 16),
                "{name} {list}: {found:?}"
            );
        }
    }

    #[test]
    fn other_ways_to_load() {
        let features = Features {
            node_bytes: 100_000_000,
            edge_bytes: 10_000_000,
        };
        let (csc, coo) = (formats("csc"), formats("coo"));
        let graph = graph(1000, 100_000, false);
        let kept = shared(&graph, &csc);
        let dgl = Graph::Dgl(Box::new(graph.clone()));
        // to DGL 0.8 all is read before anything is copied
        let early = data(&dgl, features, &csc, false);
        assert_eq!(early.peak_bytes, loading(&graph, &csc) + 220_000_000);
        assert_eq!(early.shm_bytes, data(&dgl, features, &csc, true).shm_bytes);
        let graphbolt = data(&Graph::Graphbolt { bytes: 300 }, features, &coo, true);
        assert_eq!(graphbolt.shm_bytes, 110_000_300);
        let alone = data(
            &Graph::Graphbolt { bytes: 300 },
            Features::default(),
            &coo,
            true,
        );
        assert_eq!(alone.peak_bytes, 600);
        // ids of four bytes, as GraphStorm's pipeline may write them, in csc already
        let small = GraphFile {
            formats: vec![(Sparse::Csc, 4 * (1001 + 200_000))],
            id_width: 4,
            ..graph
        };
        assert_eq!(shared(&small, &csc), kept - 4 * (1001 + 200_000));
    }

    #[test]
    fn formats_are_counted_once() {
        assert_eq!(formats("csc,coo,csc"), [Sparse::Coo, Sparse::Csc]);
        assert_eq!(formats("csr"), [Sparse::Csr]);
    }
}
