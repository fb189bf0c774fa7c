//! Decides which file has the assignment of each node type, and checks assignments.

use partition::assignment::MAX_PARTS;
use partition::chunks::Metadata;
use record::error::{Fault, Report};
use std::path::PathBuf;

/// Collects the partitions of the nodes that a file of ParMETIS numbers.
#[derive(Debug)]
pub struct Numbered(Vec<Option<u32>>);

impl Numbered {
    /// Of so many nodes.
    pub fn new(all: usize) -> Numbered {
        Numbered(vec![None; all])
    }

    /// Takes a line: `17 3`; or tells what is wrong with it.
    pub fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let words = std::str::from_utf8(line).ok().map(str::split_whitespace);
        let words: Vec<&str> = words.into_iter().flatten().collect();
        let numbers = match words[..] {
            [node, part] => node
                .parse::<usize>()
                .ok()
                .zip(part.parse().ok().filter(|part| *part < MAX_PARTS)),
            _ => None,
        };
        let Some((node, part)) = numbers else {
            return Err("is not the number of a node and its partition".to_owned());
        };
        let all = self.0.len();
        match self.0.get_mut(node) {
            Some(location @ None) => *location = Some(part),
            Some(Some(_)) => return Err(format!("names node {node} again")),
            None => return Err(format!("names node {node} of {all}, numbered from 0")),
        }
        Ok(())
    }

    /// The partition of each node, in their order; or the first node that has none.
    pub fn parts(self) -> Result<Vec<u32>, String> {
        let part = |(node, part): (u64, Option<u32>)| {
            part.ok_or_else(|| format!("has no partition for node {node}"))
        };
        (0..).zip(self.0).map(part).collect()
    }
}

/// The file of each node type.
pub fn given_files(metadata: &Metadata, given: &[String]) -> Result<Vec<PathBuf>, Report> {
    let types = &metadata.node_types;
    let mut report = Report::default();
    let mut usage = |problem: String, fix: String| {
        report.push(Fault::usage("--given", problem).fix(fix));
    };
    let mut files = vec![None; types.len()];
    for given in given {
        let is_type = |name: &str| types.iter().position(|(other, _)| other == name);
        let named = given
            .split_once('=')
            .and_then(|(name, file)| Some((is_type(name)?, file)));
        match named.or((types.len() == 1).then_some((0, given))) {
            Some((index, file)) if files[index].is_none() => files[index] = Some(file.into()),
            Some((index, _)) => usage(
                format!("{} is there twice", types[index].0),
                "give one file for each type".to_owned(),
            ),
            None => {
                let names: Vec<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
                usage(
                    format!("{given} names no type of the graph"),
                    format!("write TYPE=FILE, with one of {}", names.join(", ")),
                );
            }
        }
    }
    for ((name, _), _) in types.iter().zip(&files).filter(|(_, file)| file.is_none()) {
        let fix = format!("add --given {name}=FILE");
        usage(format!("has no file for {name}"), fix);
    }
    report.check()?;
    Ok(files.into_iter().flatten().collect())
}

/// Refuses partitions that get no node of any type, because DGL cannot load them. `counts` has, for
/// each type, the number of nodes of each partition.
pub fn check_empty(counts: &[Vec<u64>], parts: u32) -> Result<(), Report> {
    let of = |part: u32| {
        counts
            .iter()
            .filter_map(|of| of.get(part as usize))
            .sum::<u64>()
    };
    let empty: Vec<String> = (0..parts)
        .filter(|part| of(*part) == 0)
        .map(|part| part.to_string())
        .collect();
    if empty.is_empty() {
        return Ok(());
    }
    let problem = format!("no node goes to partition {}", empty.join(", "));
    Err(Fault::data("--num-parts", problem)
        .fix("take fewer partitions")
        .report())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(types: &[&str]) -> Metadata {
        let files = r#"{"format":{"name":"csv"},"data":["0"]}"#;
        let (first, counts) = (types[0], vec![1; types.len()]);
        let text = format!(
            r#"{{"graph_name":"g","node_type":{types:?},"edge_type":["{first}:e:{first}"],
            "num_nodes_per_type":{counts:?},"num_edges_per_type":[1],
            "edges":{{"{first}:e:{first}":{files}}}}}"#
        );
        Metadata::parse("m", text.as_bytes()).unwrap()
    }

    #[test]
    fn each_type_has_a_file() {
        let (one, two) = (metadata(&["n"]), metadata(&["a", "b=c"]));
        let given = |metadata: &Metadata, given: &[&str]| {
            let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
            given_files(metadata, &given)
                .map_err(|report| report.0.iter().map(Fault::to_string).collect::<String>())
        };
        let file = |name: &str| PathBuf::from(name);
        assert_eq!(given(&one, &["x=y.npy"]), Ok(vec![file("x=y.npy")]));
        assert_eq!(given(&one, &["n=y.npy"]), Ok(vec![file("y.npy")]));
        let table = [
            (&["a=1", "a=2"][..], "--given: a is there twice"),
            (
                &["1"],
                "--given: 1 names no type of the graph\n  fix: write TYPE=FILE, with one of a, b=c",
            ),
            (&["a=1"], "--given: has no file for b=c"),
        ];
        for (files, problem) in table {
            let reported = given(&two, files).unwrap_err();
            assert!(reported.contains(problem), "{reported}");
        }
    }

    #[test]
    fn parmetis_numbers_the_nodes_of_all_types() {
        let read = |lines: &[&str]| {
            let mut nodes = Numbered::new(3);
            lines
                .iter()
                .try_for_each(|line| nodes.take(line.as_bytes()))?;
            nodes.parts()
        };
        assert_eq!(read(&["2 0\r\n", "0 1\n", "1 5"]), Ok(vec![1, 5, 0]));
        let table = [
            (
                &["1 0", "2 x"][..],
                "is not the number of a node and its partition",
            ),
            (&["1 0 7"], "is not the number of a node and its partition"),
            (
                &["\u{e4} 0"],
                "is not the number of a node and its partition",
            ),
            (&["3 0"], "names node 3 of 3, numbered from 0"),
            (&["1 0", "1 0"], "names node 1 again"),
            (&["1 0", "0 0"], "has no partition for node 2"),
        ];
        for (lines, problem) in table {
            assert_eq!(read(lines), Err(problem.to_owned()), "{lines:?}");
        }
    }

    #[test]
    fn no_partition_is_empty() {
        assert!(check_empty(&[vec![1, 0], vec![0, 1]], 2).is_ok());
        let reported = check_empty(&[vec![1], vec![0, 0, 2]], 4).unwrap_err();
        assert_eq!(reported.0[0].problem, "no node goes to partition 1, 3");
    }
}
