//! Plans which chunk goes to which host, from the metadata and the hosts.

use partition::chunks::{Metadata, reader_of};
use partition::files::{Item, Key, Source, WantedFile};
use partition::format::Format;
use partition::path_ends;
use record::error::{Fault, Report};
use std::path::{Component, Path, PathBuf};

/// The chunks, each with the host that reads it, and the metadata with their paths on the hosts.
#[derive(Debug)]
pub struct Chunks {
    pub wanted: Vec<WantedFile>,
    pub metadata: String,
}

/// Plans the chunks of the metadata in the folder `here`, which is absolute, into the folder
/// `there` on the hosts.
pub fn chunks(
    metadata: &Metadata,
    here: &Path,
    there: &Path,
    hosts: usize,
) -> Result<Chunks, Report> {
    let mut report = Report::default();
    let mut wanted = Vec::new();
    let mut paths = vec![Vec::new(); metadata.sets.len()];
    for (set, paths) in metadata.sets.iter().zip(&mut paths) {
        let (key, count) = (set.keys.join("."), set.files.len());
        if count < hosts {
            let problem = format!("{count} files for {hosts} hosts: some would read nothing");
            report.push(Fault::data(key, problem).fix(format!(
                "split the graph into {hosts} chunks or more, or list {count} hosts"
            )));
            continue;
        }
        for (number, named) in set.files.iter().enumerate() {
            let mut wrong = |problem: String| {
                let fault = Fault::data(format!("{key}.{number}"), problem);
                report.push(fault.fix("correct the path in the metadata"));
            };
            if let Some(earlier) = set.files[..number].iter().position(|other| other == named) {
                wrong(format!("is {key}.{earlier} too: {named}"));
            }
            let path = Path::new(named);
            let Some(name) = path.file_name() else {
                wrong(format!("{named:?} is not a file's name"));
                continue;
            };
            let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
            let below = path.strip_prefix(here).unwrap_or(path);
            let relative = match below.components().all(plain) {
                true => below.to_owned(),
                false => {
                    let folders = set.keys.iter().map(|key| key.replace('/', "_"));
                    folders.collect::<PathBuf>().join(name)
                }
            };
            let item = Item {
                host: u32::try_from(reader_of(number, count, hosts)).ok(),
                key: Some(Key {
                    part: None,
                    name: format!("{key}.{number}"),
                }),
                ..Item::new("chunk", there.join(&relative), Source::InPlace)
            };
            // it comes from JSON, so it is UTF-8
            paths.push(relative.to_string_lossy().into_owned());
            wanted.push(WantedFile {
                candidates: candidates(here, path),
                required: true,
                format: Format::NotEmpty,
                item,
            });
        }
    }
    report.check()?;
    Ok(Chunks {
        wanted,
        metadata: metadata.rewritten(&paths),
    })
}

/// The paths at which a chunk may be: the one in the metadata and, because chunk_graph.py writes
/// absolute paths and the folder may have been moved since, the end of that path below the folder
/// of the metadata.
fn candidates(folder: &Path, path: &Path) -> Vec<PathBuf> {
    let ends = path_ends(path).into_iter().map(|end| folder.join(end));
    std::iter::once(folder.join(path)).chain(ends).collect()
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

    fn faults_of(metadata: &Metadata, hosts: usize) -> String {
        let report = chunks(metadata, Path::new("/m"), Path::new("/w/c"), hosts).unwrap_err();
        let faults: Vec<String> = report.0.iter().map(Fault::to_string).collect();
        faults.join("\n")
    }

    #[test]
    fn each_chunk_goes_to_the_host_that_reads_it() {
        let read = metadata(&["e/0", "/m/e/1", "/far/2"], &["/far/0", "../1", "./2"]);
        let chunks = chunks(&read, Path::new("/m"), Path::new("/w/c"), 2).unwrap();
        let items = chunks.wanted.iter().map(|wanted| &wanted.item);
        let items: Vec<(Option<u32>, &str)> = items
            .map(|item| (item.host, item.dst.to_str().unwrap()))
            .collect();
        assert_eq!(
            items,
            [
                (Some(0), "/w/c/e/0"),
                (Some(0), "/w/c/e/1"),
                (Some(1), "/w/c/edges/n:e:n/2"),
                (Some(0), "/w/c/node_data/n/x/0"),
                (Some(0), "/w/c/node_data/n/x/1"),
                (Some(1), "/w/c/node_data/n/x/2"),
            ]
        );
        assert_eq!(
            chunks.wanted[2].candidates[..2],
            [Path::new("/far/2"), Path::new("/m/far/2")]
        );
        let text = &chunks.metadata;
        assert!(
            text.contains("\"node_data/n/x/1\"") && !text.contains("/far"),
            "{text}"
        );
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let table = [
            (
                metadata(&["0"], &["1", "2"]),
                2,
                "edges.n:e:n: 1 files for 2 hosts",
            ),
            (
                metadata(&["0", "0"], &["1"]),
                1,
                "edges.n:e:n.1: is edges.n:e:n.0 too: 0",
            ),
            (metadata(&["/"], &["1"]), 1, "is not a file's name"),
        ];
        for (metadata, hosts, problem) in table {
            let faults = faults_of(&metadata, hosts);
            assert!(faults.contains(problem), "{faults}");
        }
    }
}
