//! The memory that a partition takes on a host while DGL's servers load it. part-fit(1) has the
//! formula with its source, and predictions beside measurements.

use partition::dgl_file::{GraphFile, Sparse, Tensor};
use record::python::Version;

/// The memory of servers and trainers before there is any data; most of it is torch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Libraries and other mapped files, which all processes of a host share.
    pub shared_bytes: u64,
    /// The memory that each process has for itself.
    pub own_bytes: u64,
}

/// What the smallest training adds to that, with the parts of torch that it loads: an optimizer,
/// gradients, a group of trainers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Training {
    /// Libraries, which all processes of a host share.
    pub shared_bytes: u64,
    /// What each trainer has of its own.
    pub trainer_bytes: u64,
    /// What each sampler has of its own.
    pub sampler_bytes: u64,
}

/// What servers copy into shared memory for each node and edge, with its bytes there
/// (RESERVED_FIELD_DTYPE in DGL's python/dgl/distributed/partition.py).
const RESERVED: [(&str, u64); 5] = [
    ("inner_node", 1),
    ("_ID", 8),
    ("inner_edge", 1),
    ("_ID", 8),
    ("_TYPE", 4),
];

const MB: u64 = 1_000_000;

/// The size of a graph's description in shared memory (SHARED_MEM_METAINFO_SIZE_MAX in DGL's
/// src/graph/shared_mem_manager.h is 32 KiB), and the last pages of its arrays.
const DESCRIPTION_BYTES: u64 = 64 << 10;

/// A graph in its file, from which follows what a server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Graph {
    /// DGL's own form.
    Dgl(Box<GraphFile>),
    /// Graphbolt's form, which is loaded and copied to shared memory unchanged.
    Graphbolt {
        /// The size of the file in bytes.
        bytes: u64,
    },
}

/// The memory of the servers that a partition takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Bytes in /dev/shm after everything is loaded: written by the first server, and mapped by all
    /// others.
    pub shm_bytes: u64,
    /// The peak memory of the first server of the host while it loads, /dev/shm included.
    pub peak_bytes: u64,
}

/// The sizes of a partition's features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Bytes of node features.
    pub node_bytes: u64,
    /// Bytes of edge features.
    pub edge_bytes: u64,
}

/// The memory of one form of a partition's graph with its features. `formats` are those that the
/// servers create; from DGL 0.9 on (`deferred`) features are loaded one file after another.
pub fn data(graph: &Graph, features: Features, formats: &[Sparse], deferred: bool) -> Data {
    let (loading, kept) = match graph {
        Graph::Dgl(file) => (loading(file, formats), shared(file, formats)),
        Graph::Graphbolt { bytes } => (2 * bytes, bytes + DESCRIPTION_BYTES),
    };
    let Features {
        node_bytes,
        edge_bytes,
    } = features;
    let shm_bytes = kept + node_bytes + edge_bytes;
    // features are read as a whole and then copied to shared memory one by one
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

/// The peak while the graph goes from its file into shared memory: either what was read with the
/// formats that are made of it; or these with their copies in shared memory, after unwanted formats
/// are gone.
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

/// The shared memory of the graph: the formats, and DGL's own data of each node and edge.
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

/// The bytes of a sparse matrix in DGL: sources and destinations; or where each row begins, the
/// other ends, and the ids of the edges.
fn bytes_of(file: &GraphFile, format: Sparse) -> u64 {
    let (nodes, edges) = (rows(&file.node_data), rows(&file.edge_data));
    match format {
        Sparse::Coo => 2 * edges * file.id_width,
        Sparse::Csr | Sparse::Csc => (nodes + 1 + 2 * edges) * file.id_width,
    }
}

/// How many nodes, or edges, a graph has, those of the halo included.
pub fn rows(data: &[Tensor]) -> u64 {
    data.iter().map(|one| one.rows).max().unwrap_or(0)
}

/// Parses the formats of `--graph-format`, each once.
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

/// The measured memory of a process that has imported DGL and torch and has no data yet; the larger
/// value if a version is not known.
pub fn process(dgl: Option<Version>, torch: Option<Version>) -> Process {
    let is_before = |version: Option<Version>| version.is_some_and(|one| one < (2, 0, 0));
    let (shared, own) = match (is_before(dgl), is_before(torch)) {
        // 1.0.4 with 1.13, for processors
        (true, true) => (130, 163),
        // 1.1.3 with 2.2.1, for CUDA
        (true, false) => (190, 230),
        // 2.1.0 with 2.2.1, for CUDA
        (false, _) => (210, 266),
    };
    Process {
        shared_bytes: shared * MB,
        own_bytes: own * MB,
    }
}

/// What training takes beside that, as it was measured with a small model and small batches: it is
/// torch's. Where its version is not known, the larger.
pub fn training(torch: Option<Version>) -> Training {
    let (shared, trainer, sampler) = match torch.is_some_and(|one| one < (2, 0, 0)) {
        true => (14, 5, 6),
        false => (16, 52, 38),
    };
    Training {
        shared_bytes: shared * MB,
        trainer_bytes: trainer * MB,
        sampler_bytes: sampler * MB,
    }
}

/// Whether servers of this DGL read features only when the graph is in shared memory, which 0.9 and
/// later do; before, everything is in memory at once.
pub fn defers_features(version: Option<Version>) -> bool {
    version.is_none_or(|version| version >= (0, 9, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph in coo, with the ids of its nodes and edges.
    fn graph(nodes: u64, edges: u64) -> GraphFile {
        let ids = |rows: u64| Tensor {
            name: "_ID".to_owned(),
            rows,
            width: 8,
            bytes: rows * 8,
            at: 0,
        };
        GraphFile {
            formats: vec![(Sparse::Coo, 16 * edges)],
            id_width: 8,
            node_data: vec![ids(nodes)],
            edge_data: vec![ids(edges)],
        }
    }

    #[test]
    fn other_ways_to_load() {
        let features = Features {
            node_bytes: 100_000_000,
            edge_bytes: 10_000_000,
        };
        let (csc, coo) = (formats("csc"), formats("coo"));
        let graph = graph(1000, 100_000);
        let kept = shared(&graph, &csc);
        let dgl = Graph::Dgl(Box::new(graph.clone()));
        // to DGL 0.8 all is read before anything is copied
        let early = data(&dgl, features, &csc, false);
        assert_eq!(early.peak_bytes, loading(&graph, &csc) + 220_000_000);
        assert_eq!(early.shm_bytes, data(&dgl, features, &csc, true).shm_bytes);
        let graphbolt = data(&Graph::Graphbolt { bytes: 300 }, features, &coo, true);
        assert_eq!(graphbolt.shm_bytes, DESCRIPTION_BYTES + 110_000_300);
        let alone = data(
            &Graph::Graphbolt { bytes: 1 << 20 },
            Features::default(),
            &coo,
            true,
        );
        assert_eq!(alone.peak_bytes, 2 << 20);
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
