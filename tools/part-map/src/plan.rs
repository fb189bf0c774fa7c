//! Which file goes where: from the config, the hosts and what was found on disk to records.

use crate::args::{Args, Paths};
use crate::config::{self, PartConfig};
use common::error::{Fault, Report};
use common::record::{FileCopy, Graph, Host, path_fields};
use indexmap::IndexMap;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// Names on the hosts. `data` and `ip_config` are relative to the workspace.
#[derive(Debug)]
pub struct Layout {
    pub workspace: PathBuf,
    pub data: PathBuf,
    pub ip_config: PathBuf,
    pub config_name: Option<String>,
    pub paths: Paths,
}

/// A file that the config names: where it may be here, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub host: Option<u32>,
    pub kind: &'static str,
    /// The first of these that is there.
    pub candidates: Vec<PathBuf>,
    /// Relative to the workspace.
    pub dst: PathBuf,
    /// Where the config names it: `part-2.part_graph`; a file that only lies beside is named by nothing.
    pub key: String,
    /// An error where it is not there.
    pub required: bool,
}

/// A file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub wanted: Wanted,
    pub src: PathBuf,
    pub bytes: u64,
    pub mtime_s: i64,
    pub mtime_nsec: u32,
    pub mode: u32,
}

/// The records.
pub struct Plan {
    pub graph: Option<Graph>,
    pub files: Vec<FileCopy>,
}

/// What lies beside the parts where the distributed partitioning pipeline was asked for it, though no config names it.
const BESIDE: [&str; 2] = ["orig_nids.dgl", "orig_eids.dgl"];

impl Layout {
    pub fn new(args: &Args) -> Result<Layout, Report> {
        let mut report = Report::default();
        if !args.workspace.is_absolute() || args.workspace.components().any(|part| part == Component::ParentDir) {
            let fault = Fault::usage("--workspace", format!("{} is not an absolute path", args.workspace.display()));
            report.push(fault.fix("it is the same folder on every host: begin it with / and leave .. out"));
        }
        if args.workspace.to_str().is_none() {
            report.push(Fault::usage("--workspace", "must be UTF-8"));
        }
        let data = report.keep(relative("--rel-data-path", &args.rel_data_path).map_err(Report::from));
        let ip_config = report.keep(relative("--ip-config", &args.ip_config).map_err(Report::from));
        if args.config_name.as_ref().is_some_and(|name| name.contains('/') || name.is_empty()) {
            report.push(Fault::usage("--config-name", "is a file's name, without a folder"));
        }
        report.check()?;
        Ok(Layout {
            workspace: args.workspace.components().collect(),
            data: data.unwrap_or_default(),
            ip_config: ip_config.unwrap_or_default(),
            config_name: args.config_name.clone(),
            paths: args.paths,
        })
    }

    /// The config's name, relative to the workspace.
    fn config(&self, graph_name: &str) -> PathBuf {
        let name = self.config_name.clone().unwrap_or_else(|| format!("{graph_name}.json"));
        match self.paths {
            Paths::Workspace => PathBuf::from(name),
            Paths::Config | Paths::Absolute => self.data.join(name),
        }
    }

    /// How the config names a part's file. DGL from 0.6 on looks relative to the config's folder, 0.5 in the working directory.
    fn part_path(&self, dst: &Path) -> PathBuf {
        match self.paths {
            Paths::Config => dst.strip_prefix(&self.data).unwrap_or(dst).to_owned(),
            Paths::Workspace => dst.to_owned(),
            Paths::Absolute => self.workspace.join(dst),
        }
    }

    /// How the config names an .npy map. Every version of DGL that has them looks in the working directory, the workspace.
    fn map_path(&self, dst: &Path) -> PathBuf {
        match self.paths {
            Paths::Config | Paths::Workspace => dst.to_owned(),
            Paths::Absolute => self.workspace.join(dst),
        }
    }
}

/// A path below the workspace, without `.` in it.
pub fn relative(option: &str, path: &Path) -> Result<PathBuf, Fault> {
    let plain = |part: &Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    match path.components().all(|part| plain(&part)) && path.to_str().is_some() {
        true => Ok(path.components().filter(|part| *part != Component::CurDir).collect()),
        false => {
            Err(Fault::usage(option, format!("{} does not stay below the workspace", path.display()))
                .fix("give a relative path without .."))
        }
    }
}

/// DGL needs exactly as many hosts as partitions.
pub fn check_count(config: &PartConfig, hosts: &[Host]) -> Result<(), Report> {
    if config.num_parts as usize == hosts.len() {
        return Ok(());
    }
    let fault = Fault::data(
        &config.place,
        format!("{} partitions for {} hosts; DGL needs as many hosts as partitions", config.num_parts, hosts.len()),
    );
    Err(fault.fix(format!("partition the graph into {} parts, or list {} hosts", hosts.len(), config.num_parts)).report())
}

/// The files that a config names.
pub fn wanted(config: Option<&PartConfig>, layout: &Layout) -> Result<Vec<Wanted>, Report> {
    let Some(config) = config else { return Ok(Vec::new()) };
    let mut wanted = Vec::new();
    let mut report = Report::default();
    for key in config::MAPS {
        if let Some(path) = config.text(key) {
            let dst = layout.data.join(format!("{key}.npy"));
            wanted.push(Wanted {
                host: None,
                kind: "map",
                candidates: candidates(config, &path),
                dst,
                key: key.to_owned(),
                required: true,
            });
        }
    }
    for (k, part) in (0u32..).zip(&config.parts) {
        if !config::GRAPHS.iter().any(|key| part.contains_key(*key)) {
            let fault = Fault::data(&config.place, format!("part-{k} names no graph ({})", config::GRAPHS.join(" or ")));
            report.push(fault.fix("partition the graph again: the config is not whole"));
        }
        let named = part.iter().filter_map(|(key, value)| Some((key, config::text(value)?)));
        let mut folder = None;
        for (key, path) in named {
            let known = config::GRAPHS.contains(&key.as_str()) || config::FEATURES.contains(&key.as_str());
            let Some(name) = Path::new(&path).file_name() else { continue };
            let candidates = candidates(config, &path);
            if known {
                folder = candidates[0].parent().map(Path::to_owned);
            }
            let dst = layout.data.join(format!("part{k}")).join(name);
            wanted.push(Wanted { host: Some(k), kind: "partition", candidates, dst, key: format!("part-{k}.{key}"), required: known });
        }
        for name in BESIDE {
            let candidates = folder.iter().map(|folder| folder.join(name)).collect();
            let dst = layout.data.join(format!("part{k}")).join(name);
            wanted.push(Wanted { host: Some(k), kind: "partition", candidates, dst, key: String::new(), required: false });
        }
    }
    report.check()?;
    Ok(wanted)
}

/// Where a file may be that the config names: as it stands, relative to the config's folder or else to the working directory; or, where
/// the folder was moved since (0.5, and .npy maps to 0.9, are written with absolute paths), at the end of its path beside the config.
fn candidates(config: &PartConfig, path: &str) -> Vec<PathBuf> {
    let path = Path::new(path);
    let mut found = vec![config.folder.join(path)];
    if path.is_relative() {
        found.extend(std::path::absolute(path));
    }
    let names: Vec<Component<'_>> = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    for count in [2, 1] {
        if let Some(from) = names.len().checked_sub(count) {
            found.push(config.folder.join(names[from..].iter().collect::<PathBuf>()));
        }
    }
    found
}

/// The records for what was found.
pub fn plan(config: Option<&PartConfig>, hosts: &[Host], layout: &Layout, found: Vec<Found>) -> Result<Plan, Report> {
    check_clashes(config, layout, &found)?;
    let mut files = Vec::new();
    let ip_config: String = hosts.iter().map(|host| format!("{} {}\n", host.ip, host.port)).collect();
    files.push(made("ip_config", ip_config, layout.workspace.join(&layout.ip_config)));
    let mut graph = None;
    if let Some(config) = config {
        let part_config = layout.config(&config.graph_name);
        files.push(made("config", rewrite(config, layout, &found)?, layout.workspace.join(&part_config)));
        graph = Some(Graph {
            graph_name: config.graph_name.clone(),
            num_parts: config.num_parts,
            files: 0,
            workspace: layout.workspace.display().to_string(),
            part_config: part_config.display().to_string(),
            ip_config: layout.ip_config.display().to_string(),
        });
    }
    files.extend(found.into_iter().map(|found| {
        let (src, src_b64) = path_fields(&found.src);
        let (dst, dst_b64) = path_fields(&layout.workspace.join(&found.wanted.dst));
        FileCopy {
            host: found.wanted.host,
            kind: found.wanted.kind.to_owned(),
            src,
            src_b64,
            dst,
            dst_b64,
            bytes: found.bytes,
            mtime_s: Some(found.mtime_s),
            mtime_nsec: Some(found.mtime_nsec),
            mode: found.mode,
            ..FileCopy::default()
        }
    }));
    let of = u32::try_from(files.len()).map_err(|_| Fault::data("files", "more than a stream can number"))?;
    for (id, file) in (0..of).zip(&mut files) {
        (file.id, file.of) = (id, of);
    }
    graph.iter_mut().for_each(|graph| graph.files = of);
    Ok(Plan { graph, files })
}

fn made(kind: &str, content: String, dst: PathBuf) -> FileCopy {
    let (dst, dst_b64) = path_fields(&dst);
    FileCopy {
        kind: kind.to_owned(),
        bytes: content.len() as u64,
        content: Some(content),
        dst,
        dst_b64,
        mode: 0o644,
        ..FileCopy::default()
    }
}

fn rewrite(config: &PartConfig, layout: &Layout, found: &[Found]) -> Result<String, Report> {
    let mut parts = vec![IndexMap::new(); config.parts.len()];
    let mut maps = IndexMap::new();
    let as_text = |path: PathBuf| path.to_str().map(str::to_owned).ok_or_else(|| Fault::data(path.display().to_string(), "must be UTF-8"));
    for Found { wanted, .. } in found {
        match (wanted.kind, wanted.key.split_once('.'), wanted.host) {
            ("map", ..) => drop(maps.insert(wanted.key.clone(), as_text(layout.map_path(&wanted.dst))?)),
            ("partition", Some((_, key)), Some(k)) => {
                drop(parts[k as usize].insert(key.to_owned(), as_text(layout.part_path(&wanted.dst))?));
            }
            _ => {}
        }
    }
    Ok(config.rewritten(&parts, &maps)?)
}

/// Two sources for one destination would leave it to chance which one arrives.
fn check_clashes(config: Option<&PartConfig>, layout: &Layout, found: &[Found]) -> Result<(), Report> {
    let mut report = Report::default();
    let mut taken: HashMap<(&Path, Option<u32>), String> = HashMap::new();
    let config_dst = config.map(|config| layout.config(&config.graph_name)).unwrap_or_default();
    taken.insert((&layout.ip_config, None), "the ip_config that is made from the host records".to_owned());
    if config.is_some() {
        let made = "the partition config that is made".to_owned();
        if let Some(other) = taken.insert((&config_dst, None), made) {
            report.push(Fault::usage("--config-name", format!("{} is {other} too", config_dst.display())));
        }
    }
    for Found { wanted, src, .. } in found {
        let everywhere = (wanted.dst.as_path(), None);
        let other = taken.get(&everywhere).cloned().or_else(|| taken.insert((&wanted.dst, wanted.host), src.display().to_string()));
        if let Some(other) = other.filter(|other| *other != src.display().to_string()) {
            let fault =
                Fault::data(src.display().to_string(), format!("goes to {} as does {other}", layout.workspace.join(&wanted.dst).display()));
            report.push(fault.fix("rename one of them, or leave one out with --exclude"));
        }
    }
    report.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(paths: Paths) -> Layout {
        Layout { workspace: "/ws".into(), data: "data".into(), ip_config: "ip_config.txt".into(), config_name: None, paths }
    }

    #[test]
    fn names_in_the_config_are_what_dgl_looks_for() {
        let part = Path::new("data/part0/graph.dgl");
        let map = Path::new("data/node_map.npy");
        let table = [
            // config, part file from the config's folder, map from the workspace
            (Paths::Config, "data/g.json", "part0/graph.dgl", "data/node_map.npy"),
            (Paths::Workspace, "g.json", "data/part0/graph.dgl", "data/node_map.npy"),
            (Paths::Absolute, "data/g.json", "/ws/data/part0/graph.dgl", "/ws/data/node_map.npy"),
        ];
        for (paths, config, part_path, map_path) in table {
            let layout = layout(paths);
            assert_eq!(layout.config("g"), PathBuf::from(config));
            assert_eq!(layout.part_path(part), PathBuf::from(part_path));
            assert_eq!(layout.map_path(map), PathBuf::from(map_path));
            // and DGL's own rules lead from there to the file: 0.6 on from the config's folder, 0.5 from the workspace
            let ws = Path::new("/ws");
            let folder = ws.join(config).parent().unwrap().to_owned();
            assert_eq!(folder.join(part_path), ws.join(part));
            assert_eq!(ws.join(map_path), ws.join(map));
            if paths != Paths::Config {
                assert_eq!(ws.join(part_path), ws.join(part), "0.5");
            }
        }
    }

    #[test]
    fn two_sources_for_one_destination() {
        let found = |host, dst: &str, src: &str| Found {
            wanted: Wanted { host, kind: "script", candidates: vec![], dst: dst.into(), key: String::new(), required: true },
            src: src.into(),
            bytes: 1,
            mtime_s: 0,
            mtime_nsec: 0,
            mode: 0o644,
        };
        let clashes = |files: &[Found]| check_clashes(None, &layout(Paths::Config), files).err().map_or(0, |report| report.0.len());
        assert_eq!(clashes(&[found(Some(0), "a", "/1"), found(Some(1), "a", "/2")]), 0, "different hosts");
        assert_eq!(clashes(&[found(Some(0), "a", "/1"), found(Some(0), "a", "/2")]), 1);
        assert_eq!(clashes(&[found(None, "a", "/1"), found(Some(0), "a", "/2")]), 1);
        assert_eq!(clashes(&[found(None, "ip_config.txt", "/1")]), 1);
        assert_eq!(clashes(&[found(None, "a", "/1"), found(None, "a", "/1")]), 0, "the same file twice");
    }

    #[test]
    fn paths_stay_below_the_workspace() {
        assert_eq!(relative("o", Path::new("./a//b/")), Ok(PathBuf::from("a/b")));
        assert_eq!(relative("o", Path::new(".")), Ok(PathBuf::new()));
        assert!(relative("o", Path::new("/a")).is_err());
        assert!(relative("o", Path::new("a/../../b")).is_err());
    }
}
