//! The workspace, the partition config and the ip_config, which flags and the graph record may both
//! give.

use crate::args::Args;
use crate::programs::Earlier;
use record::error::{Fault, Report};
use record::{Graph, Host, Workspace, at_home};
use std::path::{Component, Path, PathBuf};

/// Facts about the job in the stream, apart from its hosts.
#[derive(Default)]
pub struct StreamFacts {
    pub graph: Option<Graph>,
    /// Only if there is no graph.
    pub workspace: Option<Workspace>,
    pub earlier: Earlier,
}

/// The directory of the job and the files that DGL reads there, on which flags and records agree.
#[derive(Default)]
pub struct JobPaths {
    /// The working directory of the processes.
    pub workspace: Option<String>,
    /// DGL_CONF_PATH.
    pub part_config: Option<String>,
    /// DGL_IP_CONFIG.
    pub ip_config: String,
}

impl JobPaths {
    /// Expands `~/`. Servers and trainers need a graph, and a directory must be the same on all
    /// hosts.
    pub fn new(args: &Args, stream: &StreamFacts, hosts: &[Host]) -> Result<JobPaths, Report> {
        let (record, workspace, part_config, ip_config) = match (&stream.graph, &stream.workspace) {
            (Some(graph), _) => (
                "graph",
                Some(&graph.workspace),
                Some(&graph.part_config),
                Some(&graph.ip_config),
            ),
            (None, Some(alone)) => (
                "workspace",
                Some(&alone.workspace),
                None,
                Some(&alone.ip_config),
            ),
            (None, None) => ("workspace", None, None, None),
        };
        let mut report = Report::default();
        let mut agreed = |option, flag: &Option<PathBuf>, folder, recorded: Option<&String>| {
            let agreed = agreed(option, flag.as_deref(), folder, record, recorded, hosts);
            report.keep(agreed).flatten()
        };
        let workspace = agreed("--workspace", &args.workspace, None, workspace);
        let folder = workspace.as_deref();
        let part_config = agreed("--part-config", &args.part_config, folder, part_config);
        let ip_config = agreed("--ip-config", &args.ip_config, folder, ip_config);
        let is_known = report.0.is_empty();
        let needed = [("--workspace", &workspace), ("--part-config", &part_config)];
        for (option, path) in needed {
            if is_known && path.is_none() && args.is_dgl() {
                let fault = Fault::usage(option, "is missing, and the input has no graph");
                report.push(fault.fix(format!(
                    "for a plain torch script add --role worker; for DGL add {option}, or put \
                     part-map --part-config … before dgl-env"
                )));
            }
        }
        if let Some(dir) = workspace.as_ref().filter(|dir| !dir.starts_with('/')) {
            let problem = format!("{dir} is not an absolute path");
            let fault = match args.workspace {
                Some(_) => Fault::usage("--workspace", problem),
                None => Fault::data("stdin: graph record: workspace", problem),
            };
            report.push(fault.fix("it is the same directory on every host: begin it with / or ~/"));
        }
        report.check()?;
        Ok(JobPaths {
            workspace,
            part_config,
            ip_config: ip_config.unwrap_or_else(|| "ip_config.txt".to_owned()),
        })
    }
}

/// The path of the command line or of a record. If both give one, they must mean the same path
/// below `folder`.
fn agreed(
    option: &'static str,
    flag: Option<&Path>,
    folder: Option<&str>,
    record: &str,
    recorded: Option<&String>,
    hosts: &[Host],
) -> Result<Option<String>, Fault> {
    let field = option.trim_start_matches('-').replace('-', "_");
    let location = format!("stdin: {record} record: {field}");
    let given = match flag.map(Path::to_str) {
        None => None,
        Some(Some(path)) if !path.is_empty() => Some(at_home(option, path, hosts)?),
        Some(_) => {
            return Err(Fault::usage(option, "is empty or not UTF-8")
                .fix("give the path as it is on the hosts, or leave the option out"));
        }
    };
    let recorded = match recorded {
        None => None,
        Some(path) if path.is_empty() || path.contains('\0') => {
            let problem = if path.is_empty() {
                "is empty"
            } else {
                "has a NUL byte in it"
            };
            return Err(
                Fault::data(location, problem).fix("create the stream again, with part-map")
            );
        }
        Some(path) => Some(at_home(&location, path, hosts)?),
    };
    match (given, recorded) {
        (Some(given), Some(recorded)) if !same(folder, &given, &recorded) => {
            let problem = format!("{given} here, but {recorded} in the stream's {record} record");
            Err(Fault::data(option, problem)
                .fix(format!("leave {option} out: the {record} record has it")))
        }
        (given, recorded) => Ok(given.or(recorded)),
    }
}

/// Whether two paths below a directory are the same, as `data/./g.json`, `data//g.json` and
/// `/ws/data/g.json` are.
fn same(folder: Option<&str>, one: &str, other: &str) -> bool {
    let whole = |path: &str| -> PathBuf {
        let path = Path::new(folder.unwrap_or_default()).join(path);
        path.components()
            .filter(|part| *part != Component::CurDir)
            .collect()
    };
    whole(one) == whole(other)
}
