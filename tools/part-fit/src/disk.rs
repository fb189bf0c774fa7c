//! Reads a partition config, and the headers of the files of its parts.

use crate::args::GraphForm;
use crate::model::{Features, Graph, rows};
use crate::plan::Part;
use partition::PartConfig;
use partition::config::{DGL_GRAPH, FEATURES, GRAPHBOLT_GRAPH};
use partition::dgl_file::{self, GraphFile, Tensor};
use record::FileCopy;
use record::error::{Fault, Report};
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const AGAIN: &str = "partition the graph again, or correct the path; it is relative to the folder \
    of the config";

/// Finds on this machine what a config names.
type Find<'a> = &'a dyn Fn(&str) -> Result<PathBuf, Fault>;

/// Reads the parts at the paths of a config; everything that is missing or wrong is reported at
/// once.
pub fn parts_of_config(path: &Path, form: GraphForm) -> Result<Vec<Part>, Report> {
    let config = PartConfig::read(path)?;
    parts(&config, form, &|name| Ok(config.path_here(name)))
}

/// Reads the parts that part-map's records copy from this machine. `workspace` is the folder of the
/// job on the hosts.
pub fn parts_of_records(
    files: &[FileCopy],
    workspace: &Path,
    form: GraphForm,
) -> Result<Vec<Part>, Report> {
    let mut by_destination = HashMap::new();
    for file in files {
        by_destination.insert(file.destination()?, file);
    }
    let Some(file) = files.iter().find(|file| file.kind == "config") else {
        return Err(
            Fault::data("stdin", "no file record is the partition config's")
                .fix("put part-map --part-config … before part-fit, or give --part-config")
                .report(),
        );
    };
    let path = file.destination()?;
    let config = match (&file.content, file.source()?) {
        (Some(text), _) => {
            PartConfig::parse(text.as_bytes(), &path.display().to_string(), path.clone())?
        }
        (None, Some(source)) => PartConfig::read(&source)?,
        (None, None) => return Err(not_here(&path).report()),
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    // a path of the config is relative to its folder or to the workspace
    parts(&config, form, &|name| {
        let there = [folder.join(name), workspace.join(name)];
        let file = there.iter().find_map(|path| by_destination.get(path));
        let file = file.ok_or_else(|| {
            let problem = format!("no file record is that of {name} of the config");
            Fault::data("stdin", problem).fix("make the stream anew, with part-map")
        })?;
        file.source()?.ok_or_else(|| not_here(&there[0]))
    })
}

fn not_here(path: &Path) -> Fault {
    let problem = "is not on this machine, so nobody can say here what it needs";
    Fault::data(path.display().to_string(), problem).fix(
        "name the config where the parts can be read with --part-config, or leave part-fit out",
    )
}

fn parts(config: &PartConfig, form: GraphForm, find: Find<'_>) -> Result<Vec<Part>, Report> {
    let mut report = Report::default();
    let parts = (0..config.parts.len()).filter_map(|k| report.keep(part(k, config, form, find)));
    let parts = parts.collect();
    report.check().map(|()| parts)
}

/// A file of a part that exists.
struct PartFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl PartFile {
    fn open(path: PathBuf) -> Result<PartFile, Fault> {
        match File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((bytes, file)) => Ok(PartFile { path, file, bytes }),
            Err(error) => {
                Err(Fault::unreachable(path.display().to_string(), error.to_string()).fix(AGAIN))
            }
        }
    }

    fn wrong(&self, problem: String) -> Fault {
        Fault::data(self.path.display().to_string(), problem)
            .fix("partition the graph again: the file is not as DGL writes it")
    }

    fn graph(&self) -> Result<GraphFile, Fault> {
        GraphFile::read(&self.file, self.bytes).map_err(|problem| self.wrong(problem))
    }

    fn feature_bytes(&self) -> Result<u64, Fault> {
        let tensors = dgl_file::tensors(&self.file, self.bytes);
        let tensors = tensors.map_err(|problem| self.wrong(problem))?;
        Ok(tensors.iter().map(|one| one.bytes).sum())
    }

    /// Counts the ids that the part owns by the marks in its graph.
    fn count_own(&self, data: &[Tensor], marks: &str) -> Result<u64, Fault> {
        let Some(tensor) = data.iter().find(|one| one.name == marks) else {
            return Err(self.wrong(format!("{marks} is missing")));
        };
        dgl_file::count_nonzero(&self.file, tensor)
            .map_err(|error| self.wrong(format!("{marks}: {error}")))
    }
}

fn part(k: usize, config: &PartConfig, form: GraphForm, find: Find<'_>) -> Result<Part, Report> {
    let mut report = Report::default();
    let open = |name: &str| find(name).and_then(PartFile::open);
    // a config without them is refused
    let features = FEATURES.map(|key| {
        let file = open(&config.path_of(k, key).unwrap_or_default());
        let bytes = file.and_then(|file| Ok((file.feature_bytes()?, file.bytes)));
        report.keep(bytes).unwrap_or_default()
    });
    let dgl = config.path_of(k, DGL_GRAPH).and_then(|name| {
        let file = open(&name);
        report.keep(file.and_then(|file| Ok((file.graph()?, file))))
    });
    let graphbolt = config.path_of(k, GRAPHBOLT_GRAPH).and_then(|name| {
        match (config.path_of(k, DGL_GRAPH), form) {
            (Some(_), GraphForm::Dgl) => None,
            // of two forms, only one may have been copied
            (Some(_), _) => open(&name).ok(),
            (None, _) => report.keep(open(&name)),
        }
    });
    report.check()?;
    let (own, by_npy) = match (config.owned(k), &dgl) {
        (Some(own), _) => (own, false),
        // only .npy maps tell which these are (DGL up to 0.9)
        (None, Some((graph, file))) => {
            let nodes = file.count_own(&graph.node_data, "inner_node")?;
            (
                [nodes, file.count_own(&graph.edge_data, "inner_edge")?],
                true,
            )
        }
        (None, None) => {
            let problem =
                "the config does not say which nodes are its own, and it has no graph.dgl";
            return Err(Fault::data(format!("part-{k}"), problem)
                .fix(AGAIN)
                .report());
        }
    };
    let [nodes, edges] = features;
    let graph_bytes = dgl.iter().map(|(_, file)| file).chain(&graphbolt);
    let graph_bytes: u64 = graph_bytes.map(|file| file.bytes).sum();
    let graphbolt = graphbolt.map(|file| Graph::Graphbolt { bytes: file.bytes });
    let all = dgl
        .as_ref()
        .map(|(graph, _)| [rows(&graph.node_data), rows(&graph.edge_data)]);
    let dgl = dgl.filter(|_| form != GraphForm::Graphbolt || graphbolt.is_none());
    let dgl = dgl.map(|(graph, _)| Graph::Dgl(Box::new(graph)));
    Ok(Part {
        own,
        all,
        disk_bytes: graph_bytes + nodes.1 + edges.1,
        graphs: dgl.into_iter().chain(graphbolt).collect(),
        features: Features {
            node_bytes: nodes.0,
            edge_bytes: edges.0,
        },
        by_npy,
    })
}
