//! Plans which chunk goes to which host, from the metadata, the hosts, and the files that were
//! found.

use chunks::{Metadata, reader_of};
use record::error::{Fault, Report};
use record::{FileCopy, Host, LocalFile, Workspace, path_fields};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

/// The name of the metadata on the hosts.
const METADATA: &str = "metadata.json";
/// The folder of assignments on the hosts, beside the metadata.
const ASSIGNMENT: &str = "assignment";
const IP_CONFIG: &str = "ip_config.txt";

/// A chunk that the metadata names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The host that reads it.
    pub host: u32,
    /// The position of its set of files in the metadata.
    pub set: usize,
    /// The place in the metadata that names it: `edges.a:w:b.3`.
    pub key: String,
    /// The path as the metadata has it.
    pub named: String,
    /// The paths at which it may be; the first that exists counts.
    pub candidates: Vec<PathBuf>,
    /// The destination, relative to the metadata.
    pub dst: PathBuf,
}

/// A chunk that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The chunk that was looked for.
    pub wanted: Wanted,
    /// The file that was found.
    pub here: LocalFile,
}

/// The assignment of the nodes of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The node type.
    pub name: String,
    /// The file of the assignment.
    pub here: LocalFile,
}

/// The folders on the hosts; both are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The folder of the job.
    pub workspace: PathBuf,
    /// The folder of the metadata.
    pub chunks: PathBuf,
}

impl Layout {
    /// Checks the folders of the command line.
    pub fn new(workspace: &Path, rel_data_path: &Path) -> Result<Layout, Report> {
        let mut report = Report::default();
        let mut check = |option: &str, path: &Path, wrong: Option<&str>, fix: &str| {
            if let Some(problem) = wrong {
                let fault = Fault::usage(option, format!("{} {problem}", path.display()));
                report.push(fault.fix(fix));
            }
        };
        let up = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        let problem = |path: &Path, absolute: bool, other: &'static str| match path.to_str() {
            None => Some("must be UTF-8"),
            Some(_) if up(path) => Some("has .. in it"),
            Some(_) if path.is_absolute() != absolute => Some(other),
            Some(_) => None,
        };
        let wrong = problem(workspace, true, "is not an absolute path");
        let fix = "it is the same folder on every host: begin it with /";
        check("--workspace", workspace, wrong, fix);
        let wrong = problem(rel_data_path, false, "is not relative");
        check(
            "--rel-data-path",
            rel_data_path,
            wrong,
            "give a folder of the workspace",
        );
        report.check()?;
        let plain = |path: PathBuf| -> PathBuf {
            path.components()
                .filter(|part| *part != Component::CurDir)
                .collect()
        };
        Ok(Layout {
            workspace: plain(workspace.to_owned()),
            chunks: plain(workspace.join(rel_data_path)),
        })
    }
}

/// The chunks, each with the host that reads it. `folder` is that of the metadata, absolute.
pub fn wanted(metadata: &Metadata, folder: &Path, hosts: usize) -> Result<Vec<Wanted>, Report> {
    let mut report = Report::default();
    let mut all = Vec::new();
    for (set, files) in metadata.sets.iter().enumerate() {
        let count = files.files.len();
        if count < hosts {
            let problem = format!("{count} files for {hosts} hosts: some would read nothing");
            report.push(Fault::data(files.place(), problem).fix(format!(
                "split the graph into {hosts} chunks or more, or list {count} hosts"
            )));
            continue;
        }
        for (number, named) in files.files.iter().enumerate() {
            let path = Path::new(named);
            let Some(name) = path.file_name() else {
                let place = format!("{}.{number}", files.place());
                let fault = Fault::data(place, format!("{named:?} is not a file's name"));
                report.push(fault.fix("correct the path in the metadata"));
                continue;
            };
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            let below = path.strip_prefix(folder).unwrap_or(path);
            let dst = match below.components().all(plain) {
                true => below.to_owned(),
                false => files
                    .keys
                    .iter()
                    .map(|key| key.replace('/', "_"))
                    .collect::<PathBuf>()
                    .join(name),
            };
            all.push(Wanted {
                // below the number of hosts
                host: u32::try_from(reader_of(number, count, hosts)).unwrap_or(0),
                set,
                key: format!("{}.{number}", files.place()),
                named: named.clone(),
                candidates: candidates(folder, path),
                dst,
            });
        }
    }
    report.check()?;
    Ok(all)
}

/// The paths at which a chunk may be: the one in the metadata and, because chunk_graph.py writes
/// absolute paths and the folder may have been moved since, the end of that path below the folder
/// of the metadata.
fn candidates(folder: &Path, path: &Path) -> Vec<PathBuf> {
    let names: Vec<Component<'_>> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let ends = (0..names.len()).map(|from| folder.join(names[from..].iter().collect::<PathBuf>()));
    std::iter::once(folder.join(path)).chain(ends).collect()
}

/// The records of a plan.
#[derive(Debug)]
pub struct Plan {
    /// The record of the job's folder.
    pub workspace: Workspace,
    /// The records of the files.
    pub files: Vec<FileCopy>,
}

/// Plans the records of all files.
pub fn plan(
    metadata: &Metadata,
    hosts: &[Host],
    layout: &Layout,
    found: Vec<Found>,
    assigned: Vec<Assigned>,
) -> Result<Plan, Report> {
    check_clashes(&found)?;
    let mut paths = vec![Vec::new(); metadata.sets.len()];
    for Found { wanted, .. } in &found {
        // it comes from JSON, so it is UTF-8
        paths[wanted.set].push(wanted.dst.to_string_lossy().into_owned());
    }
    let ip_config = hosts
        .iter()
        .map(|host| format!("{} {}\n", host.ip, host.port))
        .collect();
    let mut files = vec![
        made("ip_config", &layout.workspace.join(IP_CONFIG), ip_config),
        made(
            "config",
            &layout.chunks.join(METADATA),
            metadata.rewritten(&paths),
        ),
    ];
    files.extend(assigned.into_iter().map(|Assigned { name, here }| {
        copied(
            None,
            &layout.chunks.join(ASSIGNMENT).join(format!("{name}.txt")),
            &here,
        )
    }));
    files.extend(found.iter().map(|found| {
        copied(
            Some(found.wanted.host),
            &layout.chunks.join(&found.wanted.dst),
            &found.here,
        )
    }));
    let of = u32::try_from(files.len()).map_err(|_| {
        Fault::data("files", "more than a stream can number")
            .fix("split the graph into fewer chunks")
    })?;
    for (id, file) in (0..of).zip(&mut files) {
        (file.id, file.of) = (id, of);
    }
    Ok(Plan {
        workspace: Workspace {
            workspace: layout.workspace.display().to_string(),
            ip_config: IP_CONFIG.to_owned(),
        },
        files,
    })
}

fn made(kind: &str, dst: &Path, content: String) -> FileCopy {
    let (dst, dst_b64) = path_fields(dst);
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

fn copied(host: Option<u32>, dst: &Path, here: &LocalFile) -> FileCopy {
    let (dst, dst_b64) = path_fields(dst);
    FileCopy {
        host,
        kind: "chunk".to_owned(),
        dst,
        dst_b64,
        ..here.record()
    }
}

/// Refuses two files with one destination, of which only chance would decide which is read, and one
/// file in two places of the metadata, which is a mistake there.
fn check_clashes(found: &[Found]) -> Result<(), Report> {
    let mut report = Report::default();
    let (mut places, mut files) = (HashMap::new(), HashMap::new());
    for Found { wanted, here } in found {
        let other = places.insert(&wanted.dst, wanted).filter(|_| true);
        if let Some(other) = other.filter(|other| other.named != wanted.named) {
            let problem = format!("goes to {} as does {}", wanted.dst.display(), other.key);
            report.push(Fault::data(&wanted.key, problem).fix("rename one of the two files"));
        }
        if let Some(other) = files
            .insert(&here.path, wanted)
            .filter(|other| other.set == wanted.set)
        {
            let problem = format!("is {} too: {}", other.key, here.path.display());
            report.push(Fault::data(&wanted.key, problem).fix("correct the path in the metadata"));
        }
    }
    for name in [METADATA, ASSIGNMENT] {
        if let Some(wanted) = places.get(&PathBuf::from(name)) {
            let fault = Fault::data(&wanted.key, format!("goes to {name}, which is made here"));
            report.push(fault.fix("rename the file"));
        }
    }
    report.check()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(edges: &[&str], feats: &[&str]) -> Metadata {
        let quoted = |files: &[&str]| format!("{files:?}");
        let text = format!(
            r#"{{"graph_name":"g","node_type":["n"],"edge_type":["n:e:n"],"num_nodes_per_type":[9],
            "num_edges_per_type":[9],"edges":{{"n:e:n":{{"format":{{"name":"csv"}},"data":{}}}}},
            "node_data":{{"n":{{"x":{{"format":{{"name":"numpy"}},"data":{}}}}}}}}}"#,
            quoted(edges),
            quoted(feats)
        );
        Metadata::parse("m", text.as_bytes()).unwrap()
    }

    fn found(wanted: Vec<Wanted>) -> Vec<Found> {
        let here = |wanted: &Wanted| LocalFile {
            path: wanted.candidates[0].clone(),
            bytes: 1,
            ..LocalFile::default()
        };
        wanted
            .into_iter()
            .map(|wanted| Found {
                here: here(&wanted),
                wanted,
            })
            .collect()
    }

    fn faults_of(result: Result<impl std::fmt::Debug, Report>) -> String {
        result
            .unwrap_err()
            .0
            .iter()
            .map(Fault::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn each_chunk_goes_to_the_host_that_reads_it() {
        let read = metadata(&["e/0", "/m/e/1", "/far/2"], &["/far/0", "../1", "./2"]);
        let wanted = wanted(&read, Path::new("/m"), 2).unwrap();
        let places: Vec<(u32, &str)> = wanted
            .iter()
            .map(|wanted| (wanted.host, wanted.dst.to_str().unwrap()))
            .collect();
        assert_eq!(
            places,
            [
                (0, "e/0"),
                (0, "e/1"),
                (1, "edges/n:e:n/2"),
                (0, "node_data/n/x/0"),
                (0, "node_data/n/x/1"),
                (1, "node_data/n/x/2"),
            ]
        );
        assert_eq!(
            wanted[2].candidates[..2],
            [Path::new("/far/2"), Path::new("/m/far/2")]
        );
        let layout = Layout::new(Path::new("/w/."), Path::new("c")).unwrap();
        let assigned = Assigned {
            name: "n".to_owned(),
            here: LocalFile::default(),
        };
        let plan = plan(&read, &[], &layout, found(wanted), vec![assigned]).unwrap();
        let dst: Vec<&str> = plan
            .files
            .iter()
            .map(|file| file.dst.as_deref().unwrap())
            .collect();
        assert_eq!(
            dst[..3],
            [
                "/w/ip_config.txt",
                "/w/c/metadata.json",
                "/w/c/assignment/n.txt"
            ]
        );
        assert_eq!(
            (dst[3], plan.files[3].host, plan.files[2].host),
            ("/w/c/e/0", Some(0), None)
        );
        assert!(plan.files.iter().all(|file| file.of == 9) && plan.files[8].id == 8);
        let content = plan.files[1].content.as_deref().unwrap();
        assert!(
            content.contains("\"node_data/n/x/1\"") && !content.contains("/far"),
            "{content}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let few = metadata(&["0"], &["1", "2"]);
        let fault = faults_of(wanted(&few, Path::new("/m"), 2));
        assert!(
            fault.contains("edges.n:e:n: 1 files for 2 hosts"),
            "{fault}"
        );
        let layout = Layout::new(Path::new("/w"), Path::new("c")).unwrap();
        let clash = |edges: &[&str], feats: &[&str]| {
            let read = metadata(edges, feats);
            let wanted = wanted(&read, Path::new("/m"), 1).unwrap();
            faults_of(plan(&read, &[], &layout, found(wanted), Vec::new()))
        };
        let table = [
            (
                clash(&["/a/0", "/b/0"], &["1"]),
                "goes to edges/n:e:n/0 as does edges.n:e:n.0",
            ),
            (
                clash(&["0", "0"], &["1"]),
                "edges.n:e:n.1: is edges.n:e:n.0 too: /m/0",
            ),
            (
                clash(&["metadata.json"], &["1"]),
                "goes to metadata.json, which is made here",
            ),
        ];
        for (told, problem) in table {
            assert!(told.contains(problem), "{told}");
        }
        let table = [
            ("w", "c", "w is not an absolute path"),
            ("/w", "/c", "/c is not relative"),
            ("/w/..", "c", "has .. in it"),
        ];
        for (workspace, data, problem) in table {
            let told = faults_of(Layout::new(Path::new(workspace), Path::new(data)));
            assert!(told.contains(problem), "{told}");
        }
        assert!(
            faults_of(wanted(&metadata(&["/"], &["1"]), Path::new("/m"), 1))
                .contains("is not a file's name")
        );
    }
}
