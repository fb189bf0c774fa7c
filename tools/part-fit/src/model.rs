//! The memory that partitions take on a host, from the sizes of their files. part-fit(1) explains
//! the model and shows predictions beside measurements.

use crate::args::LoadedGraphForm;
use record::python::Version;

/// The sizes of the files of a partition, or of all partitions of a host, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// The graph in DGL's own form; 0 without it.
    pub dgl: u64,
    /// The graph in graphbolt's form; 0 without it.
    pub graphbolt: u64,
    /// The features of nodes.
    pub node_features: u64,
    /// The features of edges.
    pub edge_features: u64,
}

impl Files {
    /// The bytes of all of them.
    pub fn sum(&self) -> u64 {
        self.dgl + self.graphbolt + self.node_features + self.edge_features
    }
}

/// The memory that the graph servers of a host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServersMemory {
    /// Bytes in /dev/shm after everything is loaded.
    pub shm_bytes: u64,
    /// The peak memory of the first server of the host while it loads, /dev/shm included.
    pub peak_bytes: u64,
}

/// The memory of a process that has imported DGL and torch and trains a small model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Libraries and other mapped files, which all processes of a host share.
    pub shared_bytes: u64,
    /// The memory that each process has for itself.
    pub own_bytes: u64,
}

/// The size that each format beyond the first adds to a graph. An edge takes 25 bytes in the file
/// and 16 in another format; nodes reduce the share.
const FURTHER_FORMAT_PERCENT: u64 = 60;

const MB: u64 = 1_000_000;

/// The memory of a host's partitions, whose servers create the graph in this many formats.
///
/// A graph takes as much in /dev/shm as in its file: compressed rows take 8 bytes more for each
/// node than the coordinates that partition_graph writes, but the partition ids of nodes, which
/// take 8 bytes, are not copied.
pub fn data(
    files: Files,
    form: LoadedGraphForm,
    formats: u64,
    dgl: Option<Version>,
) -> ServersMemory {
    let dgl_graph = files.dgl + files.dgl / 100 * FURTHER_FORMAT_PERCENT * (formats - 1);
    let graph = match form {
        LoadedGraphForm::Dgl if dgl_graph > 0 => dgl_graph,
        LoadedGraphForm::Graphbolt if files.graphbolt > 0 => files.graphbolt,
        _ => dgl_graph.max(files.graphbolt),
    };
    let (nodes, edges) = (files.node_features, files.edge_features);
    let shm_bytes = graph + nodes + edges;
    let peak_bytes = match dgl {
        // everything is read before anything is copied
        Some(version) if version < (0, 9, 0) => 2 * shm_bytes,
        // one file after another is read and then copied
        _ => {
            let loading_nodes = graph + 2 * nodes;
            let loading_edges = graph + nodes + 2 * edges;
            loading_nodes.max(loading_edges).max(2 * graph)
        }
    };
    ServersMemory {
        shm_bytes,
        peak_bytes,
    }
}

/// The measured memory of a process; the larger value if a version is unknown.
pub fn process(dgl: Option<Version>, torch: Option<Version>) -> ProcessMemory {
    let is_before_2 = |version: Option<Version>| version.is_some_and(|version| version < (2, 0, 0));
    let (shared, own) = match (is_before_2(dgl), is_before_2(torch)) {
        // 1.0.4 with 1.13, for processors
        (true, true) => (140, 168),
        // 1.1.3 with 2.2.1, for CUDA
        (true, false) => (195, 260),
        // 2.1.0 with 2.2.1, for CUDA
        (false, _) => (210, 295),
    };
    ProcessMemory {
        shared_bytes: shared * MB,
        own_bytes: own * MB,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_formats_and_ways_to_load() {
        let files = Files {
            dgl: 1000,
            graphbolt: 300,
            node_features: 400,
            edge_features: 100,
        };
        let (later, early) = (Some((1, 0, 4)), Some((0, 8, 2)));
        let only_dgl = Files {
            graphbolt: 0,
            ..files
        };
        let edges = Files {
            edge_features: 5000,
            ..files
        };
        let table = [
            (files, LoadedGraphForm::Auto, 1, later, 1500, 2000),
            (files, LoadedGraphForm::Dgl, 1, None, 1500, 2000),
            (files, LoadedGraphForm::Dgl, 3, later, 2700, 4400),
            (files, LoadedGraphForm::Graphbolt, 3, later, 800, 1100),
            (only_dgl, LoadedGraphForm::Graphbolt, 1, later, 1500, 2000),
            (files, LoadedGraphForm::Auto, 1, early, 1500, 3000),
            (edges, LoadedGraphForm::Auto, 1, later, 6400, 11400),
        ];
        for (files, form, formats, version, shm_bytes, peak_bytes) in table {
            let expected = ServersMemory {
                shm_bytes,
                peak_bytes,
            };
            assert_eq!(data(files, form, formats, version), expected);
        }
    }
}
