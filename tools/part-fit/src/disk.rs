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

const LOOK: &str = "partition the graph again, or correct the path; it is relative to the folder \
    of the config";

/// Where the parts are on this machine.
pub enum Parts<'a> {
    /// At the paths of a config.
    Config(&'a Path),
    /// At the paths of part-map's records.
    Records {
        /// The `file` records.
        files: &'a [FileCopy],
        /// The folder of the job on the hosts.
        workspace: &'a Path,
    },
}

impl Parts<'_> {
    /// Reads the parts; everything that is missing or wrong is reported at once.
    pub fn read(&self, form: GraphForm) -> Result<Vec<Part>, Report> {
        match self {
            Parts::Config(path) => {
                let config = PartConfig::read(path)?;
                parts(&config, form, |name| Ok(config.path_here(name)))
            }
            Parts::Records { files, workspace } => {
                let copied = Copied::new(files)?;
                let (config, folder) = copied.config()?;
                parts(&config, form, |name| copied.find(name, &folder, workspace))
            }
        }
    }
}

/// The files that are copied from this machine, by destination.
struct Copied<'a> {
    by_destination: HashMap<PathBuf, &'a FileCopy>,
}

impl Copied<'_> {
    fn new(files: &[FileCopy]) -> Result<Copied<'_>, Fault> {
        let mut by_destination = HashMap::new();
        for file in files {
            if ["config", "partition"].contains(&file.kind.as_str()) {
                by_destination.insert(file.destination()?, file);
            }
        }
        Ok(Copied { by_destination })
    }

    /// The config, and its folder on the hosts.
    fn config(&self) -> Result<(PartConfig, PathBuf), Report> {
        let configs = self.by_destination.iter();
        let found = configs.into_iter().find(|(_, file)| file.kind == "config");
        let Some((path, file)) = found else {
            return Err(
                Fault::data("stdin", "no file record is the partition config's")
                    .fix("put part-map --part-config … before part-fit, or give --part-config")
                    .report(),
            );
        };
        let config = match (&file.content, file.source()?) {
            (Some(text), _) => {
                PartConfig::parse(text.as_bytes(), &path.display().to_string(), path.clone())?
            }
            (None, Some(source)) => PartConfig::read(&source)?,
            (None, None) => return Err(not_here(path).report()),
        };
        Ok((config, path.parent().unwrap_or(Path::new("/")).to_owned()))
    }

    /// The file here that is copied to a path of the config, which is relative to the config's
    /// folder or to the workspace.
    fn find(&self, name: &str, folder: &Path, workspace: &Path) -> Result<PathBuf, Fault> {
        let there = [folder.join(name), workspace.join(name)];
        let file = there.iter().find_map(|path| self.by_destination.get(path));
        let missing = || {
            Fault::data(
                "stdin",
                format!("no file record is that of {name} of the config"),
            )
            .fix("make the stream anew, with part-map")
        };
        let file = file.ok_or_else(missing)?;
        file.source()?.ok_or_else(|| not_here(&there[0]))
    }
}

fn not_here(path: &Path) -> Fault {
    let problem = "is not on this machine, so nobody can say here what it needs";
    Fault::data(path.display().to_string(), problem).fix(
        "name the config where the parts can be read with --part-config, or leave part-fit out",
    )
}

fn parts(
    config: &PartConfig,
    form: GraphForm,
    find: impl Fn(&str) -> Result<PathBuf, Fault>,
) -> Result<Vec<Part>, Report> {
    let mut report = Report::default();
    let mut parts = Vec::new();
    for k in 0..config.parts.len() {
        let read = || -> Result<Part, Report> {
            let files = Opened::find(k, config, form, &find)?;
            files.measure(config.owned(k))
        };
        parts.extend(report.keep(read()));
    }
    report.check().map(|()| parts)
}

/// A file of a part that exists.
struct Found {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Found {
    fn open(path: PathBuf) -> Result<Found, Fault> {
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        match opened {
            Ok((bytes, file)) => Ok(Found { path, file, bytes }),
            Err(error) => {
                Err(Fault::unreachable(path.display().to_string(), error.to_string()).fix(LOOK))
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

    fn features(&self) -> Result<u64, Fault> {
        let tensors =
            dgl_file::tensors(&self.file, self.bytes).map_err(|problem| self.wrong(problem))?;
        Ok(tensors.iter().map(|one| one.bytes).sum())
    }

    fn count(&self, tensor: &Tensor) -> Result<u64, Fault> {
        dgl_file::count_nonzero(&self.file, tensor)
            .map_err(|error| self.wrong(format!("{}: {error}", tensor.name)))
    }
}

/// The files of a part.
struct Opened {
    k: usize,
    dgl: Option<Found>,
    graphbolt: Option<Found>,
    /// The features of nodes and of edges.
    features: [Found; 2],
    form: GraphForm,
}

impl Opened {
    fn find(
        k: usize,
        config: &PartConfig,
        form: GraphForm,
        find: impl Fn(&str) -> Result<PathBuf, Fault>,
    ) -> Result<Opened, Report> {
        let mut report = Report::default();
        let mut open = |name: &str| {
            let found = find(name).and_then(Found::open).map_err(Report::from);
            report.keep(found)
        };
        // a config without them is refused
        let features = FEATURES.map(|key| open(&config.path_of(k, key).unwrap_or_default()));
        let dgl = config.path_of(k, DGL_GRAPH).as_deref().map(&mut open);
        let graphbolt = config.path_of(k, GRAPHBOLT_GRAPH);
        let graphbolt = graphbolt.as_deref();
        // of two forms, only one may have been copied
        let graphbolt = match (&dgl, form) {
            (Some(_), GraphForm::Dgl) => None,
            (Some(_), _) => graphbolt.and_then(|name| find(name).and_then(Found::open).ok()),
            (None, _) => graphbolt.and_then(&mut open),
        };
        let ([Some(nodes), Some(edges)], true) = (features, report.0.is_empty()) else {
            return Err(report);
        };
        Ok(Opened {
            k,
            dgl: dgl.flatten(),
            graphbolt,
            features: [nodes, edges],
            form,
        })
    }

    fn measure(&self, own: Option<[u64; 2]>) -> Result<Part, Report> {
        let mut report = Report::default();
        let mut keep = |result: Result<u64, Fault>| report.keep(result.map_err(Report::from));
        let [nodes, edges] = &self.features;
        let (node_bytes, edge_bytes) = (keep(nodes.features()), keep(edges.features()));
        let graph = self.dgl.as_ref().map(Found::graph).transpose();
        let graph = report.keep(graph.map_err(Report::from)).flatten();
        report.check()?;
        let all = graph
            .as_ref()
            .map(|graph| [rows(&graph.node_data), rows(&graph.edge_data)]);
        let by_npy = own.is_none();
        let own = match (own, &self.dgl, &graph) {
            (Some(own), ..) => own,
            (None, Some(file), Some(graph)) => count_own(file, graph)?,
            (None, ..) => return Err(self.unknown().report()),
        };
        let found = [&self.dgl, &self.graphbolt];
        let found = found.into_iter().flatten().chain(&self.features);
        Ok(Part {
            own,
            all,
            disk_bytes: found.map(|file| file.bytes).sum(),
            graphs: self.graphs(graph),
            features: Features {
                node_bytes: node_bytes.unwrap_or(0),
                edge_bytes: edge_bytes.unwrap_or(0),
            },
            by_npy,
        })
    }

    /// The forms that the servers may load.
    fn graphs(&self, dgl: Option<GraphFile>) -> Vec<Graph> {
        let graphbolt = self
            .graphbolt
            .as_ref()
            .map(|file| Graph::Graphbolt { bytes: file.bytes });
        let dgl = dgl.filter(|_| self.form != GraphForm::Graphbolt || graphbolt.is_none());
        let dgl = dgl.map(|graph| Graph::Dgl(Box::new(graph)));
        dgl.into_iter().chain(graphbolt).collect()
    }

    fn unknown(&self) -> Fault {
        let problem = "the config does not say which nodes are its own, and it has no graph.dgl";
        Fault::data(format!("part-{}", self.k), problem).fix(LOOK)
    }
}

/// Counts the ids that a part owns by the marks in its graph, if only .npy maps tell which these
/// are (DGL up to 0.9).
fn count_own(file: &Found, graph: &GraphFile) -> Result<[u64; 2], Fault> {
    let count = |data: &[Tensor], name: &str| match data.iter().find(|one| one.name == name) {
        Some(marks) => file.count(marks),
        None => Err(file.wrong(format!("{name} is missing"))),
    };
    Ok([
        count(&graph.node_data, "inner_node")?,
        count(&graph.edge_data, "inner_edge")?,
    ])
}
