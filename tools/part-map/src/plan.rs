//! Plans which file goes where, from the config, the hosts and the files that were found.

use crate::args::{GraphForm, PartsLocation};
use crate::layout::Layout;
use partition::config::{self, DGL_GRAPH, GRAPHBOLT_GRAPH, PartConfig};
use partition::files::{self, Content, FileItem, FileSource, Key, WantedFile, path_on_hosts};
use partition::format::FileFormat;
use partition::maps::{KEYS, Map};
use record::error::{Fault, Report};
use record::term;
use record::{FileCopy, Graph, Host, LocalFile, Workspace, ip_config};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// More bytes of scripts usually are data by mistake, which would go to every host.
const MANY_BYTES: u64 = 100_000_000;
const MAX_NAMES: usize = 10;
/// Files that the distributed partitioning pipeline writes beside the parts on request, without
/// naming them in a config.
const BESIDE: [&str; 2] = ["orig_nids.dgl", "orig_eids.dgl"];

#[derive(Debug)]
pub struct FilePlan {
    pub graph: Option<Graph>,
    /// Only if there is no graph.
    pub workspace: Option<Workspace>,
    pub files: Vec<FileCopy>,
    pub warnings: Vec<String>,
}

/// There must be `per_host` partitions for each host.
pub fn check_count(config: &PartConfig, hosts: &[Host], per_host: u32) -> Result<(), Report> {
    let (parts, hosts) = (u64::from(config.num_parts), hosts.len());
    let Some(problem) = record::unequal_parts(parts, hosts, per_host) else {
        return Ok(());
    };
    let hosts = hosts as u64;
    let several = match parts.checked_div(hosts) {
        Some(several) if several > 1 && several * hosts == parts => {
            format!(
                "; for a script that reads several on each host, use --parts-per-host {several}"
            )
        }
        _ => String::new(),
    };
    let fix = format!(
        "partition the graph into {} parts, or list {} hosts{several}",
        hosts * u64::from(per_host),
        parts.div_ceil(per_host.into())
    );
    Err(Fault::data(&config.location, problem).fix(fix).report())
}

/// The form of the graph that is not wanted. Fails if the wanted one does not exist.
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
            &config.location,
            format!("not every part has the {key} that --graph asks for"),
        );
        report.push(fault.fix(match *key {
            DGL_GRAPH => "partition with use_graphbolt=False, or use --graph graphbolt",
            _ => {
                "convert it with dgl.distributed.dgl_partition_to_graphbolt (DGL 2.1 and later), \
                 or use --graph dgl"
            }
        }));
    }
    report.check().map(|()| dropped)
}

/// Warns if the user has not chosen which of two forms of the graph the script loads.
pub fn both_forms(config: &PartConfig, form: GraphForm) -> Option<String> {
    let both =
        form == GraphForm::Auto && config.all_have(DGL_GRAPH) && config.all_have(GRAPHBOLT_GRAPH);
    both.then(|| {
        let location = &config.location;
        format!(
            "{location}: has the graph in both forms\n  fix: use --graph dgl or --graph graphbolt, \
             as the script loads it, or --graph both"
        )
    })
}

/// A file that may be at `candidates` on this machine and goes to `dst`.
fn wanted_file(
    kind: &'static str,
    candidates: Vec<PathBuf>,
    dst: PathBuf,
    format: FileFormat,
) -> WantedFile {
    WantedFile {
        candidates,
        only_in: Vec::new(),
        required: false,
        format,
        item: FileItem::new(kind, dst, FileSource::InPlace),
    }
}

fn wanted_maps(config: &PartConfig, layout: &Layout) -> impl Iterator<Item = WantedFile> {
    KEYS.iter().zip(&config.maps).filter_map(|(keys, map)| {
        let Map::Npy { path, ids } = map else {
            return None;
        };
        let dst = layout.data.join(format!("{}.npy", keys.map));
        let mut file = wanted_file("map", config.candidates(path), dst, FileFormat::Npy(*ids));
        file.required = true;
        file.item.key = Some(Key {
            part: None,
            name: keys.map.to_owned(),
        });
        Some(file)
    })
}

/// `find` chooses the path of a file among its candidates.
pub fn wanted(
    config: &PartConfig,
    layout: &Layout,
    per_host: u32,
    find: impl Fn(&WantedFile) -> Option<&Path>,
) -> Vec<WantedFile> {
    let mut wanted: Vec<WantedFile> = wanted_maps(config, layout).collect();
    for (k, part) in (0u32..).zip(&config.parts) {
        let folder = layout.data.join(format!("part{k}"));
        let of_part = |candidates, name: &Path, format| {
            let mut file = wanted_file("partition", candidates, folder.join(name), format);
            file.item.host = Some(k / per_host);
            file
        };
        let mut beside = None;
        for (name, path) in part {
            let path = config::text(path).map(PathBuf::from);
            let Some((path, file_name)) = path
                .as_deref()
                .and_then(|path| Some((path, path.file_name()?)))
            else {
                continue;
            };
            let candidates = config.candidates(path);
            let mut file = of_part(candidates, Path::new(file_name), FileFormat::of_key(name));
            file.required = config::is_known(name);
            if file.required {
                let found = find(&file).and_then(Path::parent);
                beside = found.map(Path::to_owned).or(beside);
            } else {
                file.only_in.clone_from(&config.folders);
            }
            file.item.key = Some(Key {
                part: Some(k),
                name: name.clone(),
            });
            wanted.push(file);
        }
        wanted.extend(beside.iter().flat_map(|beside| {
            BESIDE.map(|name| {
                of_part(
                    vec![beside.join(name)],
                    Path::new(name),
                    FileFormat::Tensors,
                )
            })
        }));
    }
    wanted
}

/// The files beside the config, by names relative to its directory. They go beside the config on
/// every host.
pub fn beside_config(
    config: &PartConfig,
    layout: &Layout,
    names: impl IntoIterator<Item = PathBuf>,
) -> impl Iterator<Item = WantedFile> {
    let there = layout.config(&config.graph_name);
    names.into_iter().map(move |name| {
        let here = vec![config.folders[0].join(&name)];
        wanted_file(
            "map",
            here,
            there.with_file_name(&name),
            FileFormat::NotEmpty,
        )
    })
}

pub fn is_copied(wanted: &WantedFile, parts: PartsLocation, dropped: Option<&str>) -> bool {
    let key = wanted.item.key.as_ref();
    key.is_none_or(|key| Some(key.name.as_str()) != dropped)
        && (parts != PartsLocation::Remote || wanted.item.kind == "map")
}

/// The parts that their hosts already have, with the same paths below the directory of the
/// partitions as below that of their config.
pub fn on_their_hosts(
    config: &PartConfig,
    layout: &Layout,
    per_host: u32,
    dropped: Option<&str>,
) -> Result<Vec<FileItem>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    for (k, part) in (0u32..).zip(&config.parts) {
        for (name, path) in part {
            if !config::is_known(name) || Some(name.as_str()) == dropped {
                continue;
            }
            let key = Key {
                part: Some(k),
                name: name.clone(),
            };
            let path = config::text(path).unwrap_or_default();
            match path_on_hosts("part_config", Path::new(&path), Some(&layout.data), &[]) {
                Ok(dst) => items.push(FileItem {
                    host: Some(k / per_host),
                    key: Some(key),
                    ..FileItem::new("partition", dst, FileSource::OnHost)
                }),
                Err(fault) => report.push(
                    Fault::data(format!("{}: {key}", config.location), fault.problem).fix(
                        "correct the path; it is relative to the directory of the config, or \
                         absolute on its host",
                    ),
                ),
            }
        }
    }
    report.check().map(|()| items)
}

/// For a workspace that all hosts share: files below it are not copied, others are copied once.
/// `below` has the path of a file relative to the workspace, if it is there.
pub fn share(
    items: &mut [FileItem],
    workspace: &Path,
    mut below: impl FnMut(&Path) -> Option<PathBuf>,
) {
    for item in items {
        item.host = Some(0);
        let FileSource::Copied(here) = &item.source else {
            continue;
        };
        let Some(location) = below(&here.path).map(|below| workspace.join(below)) else {
            continue;
        };
        if ["partition", "map"].contains(&item.kind) || location == item.dst {
            (item.dst, item.source) = (location, FileSource::InPlace);
        }
    }
}

/// What this machine has at the paths of the hosts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Present {
    /// The config itself, in a workspace that all hosts share.
    pub shared_config: bool,
    /// The same files under all keys of the config.
    pub files: bool,
}

pub fn plan(
    config: Option<&PartConfig>,
    dropped: Option<&'static str>,
    hosts: &[Host],
    layout: &Layout,
    present: Present,
    found: Vec<FileItem>,
) -> Result<FilePlan, Report> {
    let made = FileSource::Made(Content {
        text: ip_config(hosts),
        original: None,
    });
    let mut items = vec![FileItem::new("ip_config", layout.ip_config.clone(), made)];
    let workspace = layout.workspace.display().to_string();
    let ip_config = layout
        .from_workspace(&layout.ip_config)
        .display()
        .to_string();
    let mut graph = None;
    if let Some(config) = config {
        let part_config = layout.config(&config.graph_name);
        let made = rewrite(config, dropped, layout, present, &found)?;
        items.push(FileItem::new("config", part_config.clone(), made));
        graph = Some(Graph {
            graph_name: config.graph_name.clone(),
            num_parts: config.num_parts,
            files: 0,
            workspace: workspace.clone(),
            part_config: layout.from_workspace(&part_config).display().to_string(),
            ip_config: ip_config.clone(),
        });
    }
    if layout.parts == PartsLocation::Shared {
        items.iter_mut().for_each(|item| item.host = Some(0));
    }
    named_twice(&found).check()?;
    let warnings = warnings(&found);
    items.extend(found);
    outside(&items, &layout.workspace).check()?;
    let files = files::records(items)?;
    if let Some(graph) = &mut graph {
        graph.files = files[0].of;
    }
    Ok(FilePlan {
        workspace: graph.is_none().then_some(Workspace {
            workspace,
            ip_config,
        }),
        graph,
        files,
        warnings,
    })
}

/// The config for the hosts, unless a shared workspace has it already, with the right content.
fn rewrite(
    config: &PartConfig,
    dropped: Option<&'static str>,
    layout: &Layout,
    present: Present,
    items: &[FileItem],
) -> Result<FileSource, Report> {
    let part_config = layout.config(&config.graph_name);
    let mut rewritten = config.clone();
    let mut has_same_paths = true;
    for (item, key) in items
        .iter()
        .filter_map(|item| Some((item, item.key.as_ref()?)))
    {
        let path = match key.part {
            Some(_) => layout.part_path(&part_config, &item.dst),
            None => layout.map_path(&item.dst),
        };
        let text = path.to_str().ok_or_else(|| {
            Fault::data(path.display().to_string(), "must be UTF-8")
                .fix("rename it: the config is JSON")
        })?;
        has_same_paths &= !rewritten.set_path(key.part, &key.name, text)?;
    }
    if present.shared_config && has_same_paths {
        return Ok(FileSource::InPlace);
    }
    if present.shared_config {
        let fault = Fault::data(
            &config.location,
            "would be overwritten: it names its files in another way than the hosts need",
        );
        return Err(fault
            .fix("use --config-name NAME.json, to write another one beside it")
            .report());
    }
    let has_same_keys = !dropped.is_some_and(|key| config.any_has(key));
    let replaces_it = has_same_keys && (has_same_paths || present.files);
    Ok(FileSource::Made(Content {
        text: rewritten.json(dropped)?,
        original: (!replaces_it).then(|| config.file.clone()),
    }))
}

/// Refuses files outside the workspace, as part-push does.
fn outside(items: &[FileItem], workspace: &Path) -> Report {
    let is_outside =
        |item: &&FileItem| item.source != FileSource::InPlace && !item.dst.starts_with(workspace);
    let fault = |item: &FileItem| {
        let problem = format!(
            "goes to {}, which is not below the workspace, {}",
            item.dst.display(),
            workspace.display()
        );
        Fault::data(item.label(), problem)
            .fix("name a path below the workspace: part-push writes to no other")
    };
    Report(items.iter().filter(is_outside).map(fault).collect())
}

/// Refuses one file under two keys of the config, with which two parts would be the same.
fn named_twice(items: &[FileItem]) -> Report {
    let mut report = Report::default();
    let mut named: HashMap<&Path, &Key> = HashMap::new();
    for item in items {
        let path = match &item.source {
            FileSource::Copied(here) => &here.path,
            _ => &item.dst,
        };
        if let Some(key) = &item.key
            && let Some(earlier) = named.insert(path, key)
        {
            let problem = format!("is {earlier} too: {}", path.display());
            report.push(
                Fault::data(key.to_string(), problem)
                    .fix("correct the path, or run partition_graph again"),
            );
        }
    }
    report
}

fn warnings(items: &[FileItem]) -> Vec<String> {
    let bytes = items
        .iter()
        .filter(|item| ["script", "extra"].contains(&item.kind))
        .map(|item| match &item.source {
            FileSource::Copied(here) => here.bytes,
            _ => 0,
        });
    let bytes = Some(bytes.sum()).filter(|bytes| *bytes > MANY_BYTES);
    bytes
        .map(|bytes| {
            format!(
                "{} of scripts and extras go to every host\n  fix: leave out what they do not need \
             with --exclude",
                term::bytes(bytes)
            )
        })
        .into_iter()
        .chain(empty_scripts(items))
        .collect()
}

/// Warns about scripts without content: Python runs them and ends with status 0.
fn empty_scripts(items: &[FileItem]) -> Option<String> {
    let is_script = |path: &Path| {
        let is_python = path.extension().is_some_and(|extension| extension == "py");
        is_python && !path.ends_with("__init__.py")
    };
    let empty = items.iter().filter_map(|item| match &item.source {
        FileSource::Copied(LocalFile { path, bytes: 0, .. }) if is_script(path) => {
            Some(path.display().to_string())
        }
        _ => None,
    });
    let names = term::first_few(empty.collect::<BTreeSet<_>>(), MAX_NAMES);
    (!names.is_empty()).then(|| {
        format!(
            "empty: {names}; Python runs an empty script without an error\n  fix: save it again, \
             or leave it out with --exclude"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(host: Option<u32>, dst: &str, src: &str) -> FileItem {
        let here = LocalFile {
            path: src.into(),
            bytes: 1,
            ..LocalFile::default()
        };
        FileItem {
            host,
            ..FileItem::new("script", dst.into(), FileSource::Copied(here))
        }
    }

    fn keyed(part: u32, src: &str) -> FileItem {
        let key = Key {
            part: Some(part),
            name: "part_graph".to_owned(),
        };
        FileItem {
            kind: "partition",
            key: Some(key),
            ..item(Some(part), &format!("/ws/data/part{part}/g"), src)
        }
    }

    #[test]
    fn a_file_under_two_keys_is_refused() {
        assert!(named_twice(&[keyed(0, "/1"), keyed(1, "/2")]).0.is_empty());
        let twice = named_twice(&[keyed(0, "/1"), keyed(1, "/1")]);
        let wanted = "part-1.part_graph: is part-0.part_graph too: /1";
        assert!(twice.0[0].to_string().starts_with(wanted));
        // wherever the partitions are
        for source in [FileSource::OnHost, FileSource::InPlace] {
            let there = |part, dst: &str| FileItem {
                dst: dst.into(),
                source: source.clone(),
                ..keyed(part, "/1")
            };
            assert!(
                named_twice(&[there(0, "/ws/g0"), there(1, "/ws/g1")])
                    .0
                    .is_empty()
            );
            let twice = named_twice(&[there(0, "/ws/g"), there(1, "/ws/g")]);
            assert_eq!(twice.0.len(), 1);
        }
    }

    #[test]
    fn a_shared_workspace_gets_each_file_once() {
        let script = |dst: &str, src: &str| item(None, dst, src);
        let table = [
            // files of the graph stay at their paths below the workspace; a script must be at its
            // destination, or is copied
            (keyed(1, "/ws/out/p1/g"), "/ws/out/p1/g", true),
            (keyed(1, "/mnt/real/out/g"), "/ws/out/g", true),
            (keyed(1, "/home/out/g"), "/ws/data/part1/g", false),
            (
                FileItem {
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
            let below = |path: &Path| {
                let below = path.strip_prefix("/ws").or(path.strip_prefix("/mnt/real"));
                below.ok().map(Path::to_owned)
            };
            share(&mut items, Path::new("/ws"), below);
            let [after] = items;
            assert_eq!(
                (
                    after.host,
                    after.dst.to_str(),
                    after.source == FileSource::InPlace
                ),
                (Some(0), Some(dst), in_place)
            );
        }
    }

    #[test]
    fn much_that_goes_everywhere_is_worth_a_word() {
        let mut script = item(None, "/ws/a", "/a");
        assert!(warnings(&[script.clone()]).is_empty());
        if let FileSource::Copied(here) = &mut script.source {
            here.bytes = 100_000_001;
        }
        assert_eq!(warnings(&[script.clone()]).len(), 1);
        script.kind = "partition";
        assert!(warnings(&[script]).is_empty());
    }
}
