//! Plans which file goes where, from the config, the hosts and the files that were found.

use crate::args::{GraphForm, Parts};
use crate::format::Format;
use crate::layout::{Layout, Place};
use indexmap::IndexMap;
use partition::config::{self, Changes, DGL_GRAPH, GRAPHBOLT_GRAPH, PartConfig};
use partition::maps::{KEYS, Map};
use record::error::{Fault, Report};
use record::term;
use record::{FileCopy, Graph, Host, LocalFile, RESERVED, Workspace, is_reserved, path_fields};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// More bytes of scripts than this are usually data by mistake, and they go to every host.
const MANY_BYTES: u64 = 100_000_000;
/// Files that the distributed partitioning pipeline puts beside the parts on request, although no
/// config names them.
const BESIDE: [&str; 2] = ["orig_nids.dgl", "orig_eids.dgl"];

/// The place of a file in the config: `part-2.part_graph`, or `node_map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The part; `None` for a map.
    pub part: Option<u32>,
    /// The key.
    pub name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            Some(k) => write!(f, "part-{k}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A file that the config names, or that lies beside one that it names: where it may be here, and
/// where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedFile {
    /// The host that gets it; `None` for all hosts.
    pub host: Option<u32>,
    /// The kind of file: partition or map.
    pub kind: &'static str,
    /// The paths at which it may be; the first that exists counts.
    pub candidates: Vec<PathBuf>,
    /// The absolute path on the host.
    pub dst: PathBuf,
    /// The place in the config; `None` for a file that only lies beside one.
    pub key: Option<Key>,
    /// Whether it must exist.
    pub required: bool,
    /// The format that it must have.
    pub format: Format,
}

impl WantedFile {
    /// Whether it is copied from here to the hosts.
    pub fn is_copied(&self, parts: Parts, dropped: Option<&str>) -> bool {
        let asked = self
            .key
            .as_ref()
            .is_none_or(|key| Some(key.name.as_str()) != dropped);
        asked && (parts != Parts::Remote || self.kind == "map")
    }
}

/// The source of what a host will have at a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// It is copied from this machine.
    Copied(LocalFile),
    /// An empty folder is made.
    Folder,
    /// It must already be on the host.
    There,
    /// It is in the workspace that all hosts share.
    InPlace,
}

/// A file or folder that a host will have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The host; `None` for all hosts.
    pub host: Option<u32>,
    /// The kind: partition, map, script or extra.
    pub kind: &'static str,
    /// The absolute path on the host.
    pub dst: PathBuf,
    /// The place in the config, if it is named there.
    pub key: Option<Key>,
    /// The source.
    pub source: Source,
}

/// The records of a plan, and warnings.
#[derive(Debug)]
pub struct Plan {
    /// The graph record, if there is a graph.
    pub graph: Option<Graph>,
    /// The record of the job's folder, if there is no graph.
    pub workspace: Option<Workspace>,
    /// The file records.
    pub files: Vec<FileCopy>,
    /// Warnings for people.
    pub warnings: Vec<String>,
}

/// Checks that there are as many hosts as partitions, which DGL needs.
pub fn check_count(config: &PartConfig, hosts: &[Host]) -> Result<(), Report> {
    if config.num_parts as usize == hosts.len() {
        return Ok(());
    }
    let fault = Fault::data(
        &config.place,
        format!(
            "{} partitions for {} hosts; DGL needs as many hosts as partitions",
            config.num_parts,
            hosts.len()
        ),
    );
    Err(fault
        .fix(format!(
            "partition the graph into {} parts, or list {} hosts",
            hosts.len(),
            config.num_parts
        ))
        .report())
}

/// The form of the graph that is not wanted. It is a fault if the wanted one does not exist.
pub fn dropped(config: &PartConfig, form: GraphForm) -> Result<Option<&'static str>, Report> {
    let (keys, dropped): (&[&str], _) = match form {
        GraphForm::Auto => (&[], None),
        GraphForm::Dgl => (&[DGL_GRAPH], Some(GRAPHBOLT_GRAPH)),
        GraphForm::Graphbolt => (&[GRAPHBOLT_GRAPH], Some(DGL_GRAPH)),
        GraphForm::Both => (&[DGL_GRAPH, GRAPHBOLT_GRAPH], None),
    };
    let mut report = Report::default();
    for key in keys.iter().filter(|key| !config.all_have(key)) {
        let fault = Fault::data(
            &config.place,
            format!("not every part has the {key} that --graph asks for"),
        );
        report.push(fault.fix(match *key {
            DGL_GRAPH => "partition with use_graphbolt=False, or say --graph graphbolt",
            _ => {
                "convert it with dgl.distributed.dgl_partition_to_graphbolt (DGL 2.1 and later), \
                or say --graph dgl"
            }
        }));
    }
    report.check().map(|()| dropped)
}

/// A warning if nobody has chosen which of two forms of the graph the script loads.
pub fn both_forms(config: &PartConfig, form: GraphForm) -> Option<String> {
    let both =
        form == GraphForm::Auto && config.all_have(DGL_GRAPH) && config.all_have(GRAPHBOLT_GRAPH);
    both.then(|| {
        let place = &config.place;
        format!(
            "{place}: has the graph in both forms\n  fix: say --graph dgl or --graph graphbolt, \
             as the script loads it, or --graph both"
        )
    })
}

/// The .npy maps that a config names.
fn wanted_maps(config: &PartConfig, layout: &Layout) -> impl Iterator<Item = WantedFile> {
    let maps = KEYS.iter().zip(&config.maps);
    maps.filter_map(|(keys, map)| {
        let Map::Npy { path, ids } = map else {
            return None;
        };
        Some(WantedFile {
            host: None,
            kind: "map",
            candidates: config.candidates(path),
            dst: layout.data.join(format!("{}.npy", keys.map)),
            key: Some(Key {
                part: None,
                name: keys.map.to_owned(),
            }),
            required: true,
            format: Format::Npy(*ids),
        })
    })
}

/// The files that a config names, and those beside them.
pub fn wanted(config: &PartConfig, layout: &Layout) -> Vec<WantedFile> {
    let mut wanted: Vec<WantedFile> = wanted_maps(config, layout).collect();
    for (k, part) in (0u32..).zip(&config.parts) {
        let folder = layout.data.join(format!("part{k}"));
        let mut beside = None;
        for (name, path) in part {
            let Some(path) = config::text(path) else {
                continue;
            };
            let Some(file) = Path::new(&path).file_name() else {
                continue;
            };
            let candidates = config.candidates(&path);
            let required = config::is_known(name);
            if required {
                beside = candidates
                    .first()
                    .and_then(|path| path.parent())
                    .map(Path::to_owned);
            }
            wanted.push(WantedFile {
                host: Some(k),
                kind: "partition",
                candidates,
                dst: folder.join(file),
                key: Some(Key {
                    part: Some(k),
                    name: name.clone(),
                }),
                required,
                format: Format::of_key(name),
            });
        }
        wanted.extend(beside.iter().flat_map(|beside| {
            BESIDE.map(|name| WantedFile {
                host: Some(k),
                kind: "partition",
                candidates: vec![beside.join(name)],
                dst: folder.join(name),
                key: None,
                required: false,
                format: Format::Tensors,
            })
        }));
    }
    wanted
}

/// The files that lie beside the config, by their names relative to its folder. They go to every
/// host, beside the config there.
pub fn beside_config(
    config: &PartConfig,
    layout: &Layout,
    names: Vec<PathBuf>,
) -> impl Iterator<Item = WantedFile> {
    let there = layout.config(&config.graph_name);
    let here = config.folders.first().cloned().unwrap_or_default();
    names.into_iter().map(move |name| WantedFile {
        host: None,
        kind: "map",
        candidates: vec![here.join(&name)],
        dst: there.with_file_name(&name),
        key: None,
        required: false,
        format: Format::NotEmpty,
    })
}

const NAME_IT_BELOW: &str =
    "correct the path; it is relative to the folder of the config, or absolute on its host";

/// The parts that their hosts already have: their paths below the folder of the partitions are
/// those below the folder of their config.
pub fn on_their_hosts(
    config: &PartConfig,
    layout: &Layout,
    dropped: Option<&str>,
) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    let place = Place {
        option: "part_config",
        below: Some(&layout.data),
        hosts: &[],
    };
    for (k, part) in (0u32..).zip(&config.parts) {
        for (name, path) in part
            .iter()
            .filter(|(name, _)| config::is_known(name) && Some(name.as_str()) != dropped)
        {
            let key = Key {
                part: Some(k),
                name: name.clone(),
            };
            match place.path(Path::new(&config::text(path).unwrap_or_default())) {
                Ok(dst) => items.push(Item {
                    host: Some(k),
                    kind: "partition",
                    dst,
                    key: Some(key),
                    source: Source::There,
                }),
                Err(fault) => report.push(
                    Fault::data(format!("{}: {key}", config.place), fault.problem)
                        .fix(NAME_IT_BELOW),
                ),
            }
        }
    }
    report.check().map(|()| items)
}

/// For a workspace that all hosts share: files below it stay where they are, all others are copied
/// once.
pub fn share(items: &mut [Item], workspace: &Path, real_workspace: &Path) {
    for item in items {
        item.host = Some(0);
        let Source::Copied(here) = &item.source else {
            continue;
        };
        let below = here
            .path
            .strip_prefix(workspace)
            .or(here.path.strip_prefix(real_workspace));
        let Ok(place) = below.map(|below| workspace.join(below)) else {
            continue;
        };
        if ["partition", "map"].contains(&item.kind) || place == item.dst {
            (item.dst, item.source) = (place, Source::InPlace);
        }
    }
}

/// Plans the records of all files.
pub fn plan(
    config: Option<&PartConfig>,
    dropped: Option<&'static str>,
    hosts: &[Host],
    layout: &Layout,
    items: Vec<Item>,
) -> Result<Plan, Report> {
    let mut made = Vec::new();
    let ip_config: String = hosts
        .iter()
        .map(|host| format!("{} {}\n", host.ip, host.port))
        .collect();
    made.push(("ip_config", layout.ip_config.clone(), Some(ip_config)));
    let workspace = layout.workspace.display().to_string();
    let ip_config_there = layout
        .from_workspace(&layout.ip_config)
        .display()
        .to_string();
    let mut graph = None;
    if let Some(config) = config {
        let part_config = layout.config(&config.graph_name);
        made.push((
            "config",
            part_config.clone(),
            rewrite(config, dropped, layout, &part_config, &items)?,
        ));
        graph = Some(Graph {
            graph_name: config.graph_name.clone(),
            num_parts: config.num_parts,
            files: 0,
            workspace: workspace.clone(),
            part_config: layout.from_workspace(&part_config).display().to_string(),
            ip_config: ip_config_there.clone(),
        });
    }
    let alone = graph.is_none().then_some(Workspace {
        workspace,
        ip_config: ip_config_there,
    });
    check_clashes(&made, &items)?;
    let warnings = warnings(&items);
    let once = (layout.parts == Parts::Shared).then_some(0);
    let made = made
        .into_iter()
        .filter_map(|(kind, dst, content)| Some(made_record(once, kind, &dst, content?)));
    let mut files: Vec<FileCopy> = made.chain(items.into_iter().filter_map(record)).collect();
    let of = u32::try_from(files.len()).map_err(|_| {
        Fault::data("files", "more than a stream can number").fix("leave some out with --exclude")
    })?;
    for (id, file) in (0..of).zip(&mut files) {
        (file.id, file.of) = (id, of);
    }
    graph.iter_mut().for_each(|graph| graph.files = of);
    Ok(Plan {
        graph,
        workspace: alone,
        files,
        warnings,
    })
}

fn made_record(host: Option<u32>, kind: &str, dst: &Path, content: String) -> FileCopy {
    let file = FileCopy {
        host,
        kind: kind.to_owned(),
        bytes: content.len() as u64,
        content: Some(content),
        mode: 0o644,
        ..FileCopy::default()
    };
    to(dst, file)
}

fn record(item: Item) -> Option<FileCopy> {
    let file = FileCopy {
        host: item.host,
        kind: item.kind.to_owned(),
        mode: 0o644,
        ..FileCopy::default()
    };
    match item.source {
        Source::InPlace => None,
        Source::There => Some(to(&item.dst, file)),
        Source::Folder => {
            let folder = FileCopy {
                mode: 0o755,
                ..file
            };
            Some(to(&item.dst.join(""), folder))
        }
        Source::Copied(here) => {
            let copied = FileCopy {
                host: file.host,
                kind: file.kind,
                ..here.record()
            };
            Some(to(&item.dst, copied))
        }
    }
}

fn to(dst: &Path, file: FileCopy) -> FileCopy {
    let (dst, dst_b64) = path_fields(dst);
    FileCopy {
        dst,
        dst_b64,
        ..file
    }
}

/// The config for the hosts; `None` if a shared workspace has it already, with the right content.
fn rewrite(
    config: &PartConfig,
    dropped: Option<&'static str>,
    layout: &Layout,
    part_config: &Path,
    items: &[Item],
) -> Result<Option<String>, Report> {
    let mut changes = Changes {
        maps: IndexMap::new(),
        parts: vec![IndexMap::new(); config.parts.len()],
        dropped,
    };
    let other = |path: &Path| {
        Fault::data(path.display().to_string(), "must be UTF-8")
            .fix("rename it: the config is JSON")
    };
    let text = |path: PathBuf| path.to_str().map(str::to_owned).ok_or_else(|| other(&path));
    for (item, key) in items
        .iter()
        .filter_map(|item| Some((item, item.key.as_ref()?)))
    {
        let (paths, path) = match key.part {
            Some(k) => (
                &mut changes.parts[k as usize],
                layout.part_path(part_config, &item.dst),
            ),
            None => (&mut changes.maps, layout.map_path(&item.dst)),
        };
        paths.insert(key.name.clone(), text(path)?);
    }
    if layout.parts == Parts::Shared && part_config == config.file {
        if config.says(&changes) {
            return Ok(None);
        }
        let fault = Fault::data(
            &config.place,
            "would be written over: it names its files in another way than the hosts need",
        );
        return Err(fault
            .fix("say --config-name NAME.json, to have another one beside it")
            .report());
    }
    Ok(Some(config.rewritten(&changes)?))
}

/// A file that takes a destination.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recipient<'a> {
    Made(&'a str),
    File(&'a Path),
}

impl std::fmt::Display for Recipient<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recipient::Made(kind) => write!(f, "the {kind} that is made here"),
            Recipient::File(path) => path.display().fmt(f),
        }
    }
}

/// Refuses two sources for one destination, of which only chance would decide which arrives, and a
/// file where another one needs a folder.
fn check_clashes(made: &[(&str, PathBuf, Option<String>)], items: &[Item]) -> Result<(), Report> {
    let mut report = Report::default();
    let mut taken: HashMap<(&Path, Option<u32>), Recipient<'_>> = HashMap::new();
    let made = made
        .iter()
        .map(|(kind, dst, _)| (dst, None, Recipient::Made(kind)));
    let found = items.iter().map(|item| {
        let from = match &item.source {
            Source::Copied(here) => &here.path,
            _ => &item.dst,
        };
        (&item.dst, item.host, Recipient::File(from))
    });
    for (dst, _, taker) in made.clone().chain(found.clone()) {
        report.0.extend(reserved(dst, taker));
    }
    let found = found
        .zip(items)
        .filter(|(_, item)| item.source != Source::Folder);
    let found = found.map(|(found, _)| found);
    let mut all: Vec<_> = made.chain(found).collect();
    // what every host gets comes first, so that what one host gets is compared with it
    all.sort_by_key(|(_, host, _)| host.is_some());
    for (dst, host, taker) in all {
        let everywhere = taken.get(&(dst.as_path(), None)).copied();
        let other = everywhere
            .or_else(|| taken.insert((dst, host), taker))
            .filter(|other| *other != taker);
        if let Some(other) = other {
            let fault = Fault::data(
                taker.to_string(),
                format!("goes to {} as does {other}", dst.display()),
            );
            report.push(fault.fix("rename one of them, or leave one out with --exclude"));
        }
    }
    report.extend(above_files(taken, items));
    report.extend(named_twice(items));
    report.check()
}

/// Refuses a file where another one needs a folder.
fn above_files(taken: HashMap<(&Path, Option<u32>), Recipient<'_>>, items: &[Item]) -> Report {
    let mut report = Report::default();
    let files: HashMap<&Path, Recipient<'_>> = taken
        .into_iter()
        .map(|((dst, _), taker)| (dst, taker))
        .collect();
    let folders: HashSet<&Path> = items
        .iter()
        .filter_map(|item| match item.source {
            Source::Folder => Some(item.dst.as_path()),
            _ => item.dst.parent(),
        })
        .collect();
    let above: HashSet<&Path> = folders.into_iter().flat_map(Path::ancestors).collect();
    for (folder, taker) in above
        .into_iter()
        .filter_map(|folder| Some((folder, files.get(folder)?)))
    {
        let fault = Fault::data(
            taker.to_string(),
            format!(
                "goes to {}, where other files need a folder",
                folder.display()
            ),
        );
        report.push(fault.fix("rename one of them, or leave one out with --exclude"));
    }
    report
}

/// Refuses a name that part-push uses on the hosts.
fn reserved(dst: &Path, taker: Recipient<'_>) -> Option<Fault> {
    is_reserved(dst).then(|| {
        let problem = format!(
            "goes to {}, but names that begin with {RESERVED} are part-push's own",
            dst.display()
        );
        let fix = format!("rename it, or leave it out with --exclude '{RESERVED}*'");
        Fault::data(taker.to_string(), problem).fix(fix)
    })
}

/// Refuses one file under two keys of the config, which would make two parts the same.
fn named_twice(items: &[Item]) -> Report {
    let mut report = Report::default();
    let mut named: HashMap<&Path, &Key> = HashMap::new();
    for item in items {
        if let (Some(key), Source::Copied(LocalFile { path, .. })) = (&item.key, &item.source)
            && let Some(earlier) = named.insert(path, key)
        {
            let fault = Fault::data(
                key.to_string(),
                format!("is {earlier} too: {}", path.display()),
            );
            report.push(fault.fix("correct the path, or run partition_graph again"));
        }
    }
    report
}

fn warnings(items: &[Item]) -> Vec<String> {
    let mut warnings = Vec::new();
    let scripts = items
        .iter()
        .filter(|item| item.kind == "script" || item.kind == "extra");
    let bytes = scripts
        .filter_map(|item| {
            if let Source::Copied(here) = &item.source {
                Some(here.bytes)
            } else {
                None
            }
        })
        .sum();
    if bytes > MANY_BYTES {
        warnings.push(format!(
            "{} of scripts and extras go to every host\n  fix: leave out what they do not need \
             with --exclude",
            term::bytes(bytes)
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(host: Option<u32>, dst: &str, src: &str) -> Item {
        let here = LocalFile {
            path: src.into(),
            bytes: 1,
            mtime_s: 0,
            mtime_nsec: 0,
            mode: 0o644,
            identity: (0, 0),
        };
        Item {
            host,
            kind: "script",
            dst: dst.into(),
            key: None,
            source: Source::Copied(here),
        }
    }

    fn folder(dst: &str) -> Item {
        Item {
            source: Source::Folder,
            ..item(None, dst, "/")
        }
    }

    fn keyed(part: u32, src: &str) -> Item {
        let key = Key {
            part: Some(part),
            name: "part_graph".to_owned(),
        };
        Item {
            kind: "partition",
            key: Some(key),
            ..item(Some(part), &format!("/ws/data/part{part}/g"), src)
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn two_sources_for_one_destination() {
        let made = [("ip_config", PathBuf::from("/ws/ip_config.txt"), None)];
        let table: [(&[Item], Option<&str>); 15] = [
            (
                &[item(Some(0), "/ws/a", "/1"), item(Some(1), "/ws/a", "/2")],
                None,
            ),
            (
                &[item(None, "/ws/a", "/1"), item(None, "/ws/a", "/1")],
                None,
            ),
            (
                &[item(None, "/ws/a/b", "/1"), item(None, "/ws/a/c", "/2")],
                None,
            ),
            (&[keyed(0, "/1"), keyed(1, "/2")], None),
            (
                &[item(Some(0), "/ws/a", "/1"), item(Some(0), "/ws/a", "/2")],
                Some("/2: goes to /ws/a as does /1"),
            ),
            (
                &[item(None, "/ws/a", "/1"), item(Some(0), "/ws/a", "/2")],
                Some("/2: goes to /ws/a as does /1"),
            ),
            (
                &[item(Some(0), "/ws/a", "/1"), item(None, "/ws/a", "/2")],
                Some("/1: goes to /ws/a as does /2"),
            ),
            (
                &[item(None, "/ws/a", "/1"), folder("/ws/a")],
                Some("/1: goes to /ws/a, where other files need a folder"),
            ),
            (
                &[item(None, "/ws/.part-push.lock", "/1")],
                Some("/1: goes to /ws/.part-push.lock, but names that begin with .part-push. are"),
            ),
            (
                &[folder("/ws/b/.part-push.kept")],
                Some("/ws/b/.part-push.kept: goes to /ws/b/.part-push.kept, but names"),
            ),
            (&[item(None, "/ws/.part-pushed", "/1")], None),
            (
                &[item(None, "/ws/ip_config.txt", "/1")],
                Some("/1: goes to /ws/ip_config.txt as does the ip_config that is made here"),
            ),
            (
                &[item(None, "/ws/a", "/1"), item(None, "/ws/a/b/c", "/2")],
                Some("/1: goes to /ws/a, where other files need a folder"),
            ),
            (
                &[item(None, "/ws", "/1"), item(None, "/ws/b", "/2")],
                Some("/1: goes to /ws, where"),
            ),
            (
                &[keyed(0, "/1"), keyed(1, "/1")],
                Some("part-1.part_graph: is part-0.part_graph too: /1"),
            ),
        ];
        for (items, problem) in table {
            let got = check_clashes(&made, items)
                .err()
                .map(|report| report.0[0].to_string());
            assert_eq!(got.is_some(), problem.is_some(), "{got:?}");
            assert!(
                got.as_deref()
                    .unwrap_or_default()
                    .starts_with(problem.unwrap_or_default()),
                "{got:?}"
            );
        }
        let twice = [
            ("ip_config", PathBuf::from("/ws/a"), None),
            ("config", PathBuf::from("/ws/a"), None),
        ];
        assert_eq!(
            check_clashes(&twice, &[]).expect_err("twice").0[0].problem,
            "goes to /ws/a as does the ip_config that is made here"
        );
    }

    #[test]
    fn a_shared_workspace_gets_each_file_once() {
        let script = |dst: &str, src: &str| item(None, dst, src);
        let table = [
            // what belongs to the graph stays where it is below the workspace, whatever its place
            // there; a script is where it must be, or copied
            (keyed(1, "/ws/out/p1/g"), "/ws/out/p1/g", true),
            (keyed(1, "/mnt/real/out/g"), "/ws/out/g", true),
            (keyed(1, "/home/out/g"), "/ws/data/part1/g", false),
            (
                Item {
                    key: None,
                    ..keyed(1, "/ws/out/p1/orig_nids.dgl")
                },
                "/ws/out/p1/orig_nids.dgl",
                true,
            ),
            (
                script("/ws/code/a.py", "/ws/code/a.py"),
                "/ws/code/a.py",
                true,
            ),
            (
                script("/ws/code/a.py", "/ws/me/code/a.py"),
                "/ws/code/a.py",
                false,
            ),
        ];
        for (before, dst, in_place) in table {
            let mut items = [before];
            share(&mut items, Path::new("/ws"), Path::new("/mnt/real"));
            let [after] = items;
            assert_eq!(
                (
                    after.host,
                    after.dst.to_str(),
                    after.source == Source::InPlace
                ),
                (Some(0), Some(dst), in_place)
            );
        }
    }

    #[test]
    fn much_that_goes_everywhere_is_worth_a_word() {
        let mut script = item(None, "/ws/a", "/a");
        assert!(warnings(&[script.clone()]).is_empty());
        if let Source::Copied(here) = &mut script.source {
            here.bytes = 100_000_001;
        }
        assert_eq!(warnings(&[script.clone()]).len(), 1);
        script.kind = "partition";
        assert!(warnings(&[script]).is_empty());
    }
}
