//! Decides where the assignment of each node type comes from, and checks assignments.

use chunks::Metadata;
use record::error::{Fault, Report};
use std::ops::Range;
use std::path::PathBuf;

/// The source of the assignment of a node type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Random, with this seed.
    Drawn(u64),
    /// Read from a file.
    File(PathBuf),
    /// Of a file of ParMETIS, which numbers the nodes of all types, one type after the other: the
    /// numbers of the nodes of this type.
    Numbered(Range<usize>),
}

impl Source {
    /// The option that it comes from.
    pub fn option(&self) -> &'static str {
        match self {
            Source::Drawn(_) => "--random",
            Source::File(_) => "--given",
            Source::Numbered(_) => "--parmetis",
        }
    }
}

/// How many nodes there are of all types.
pub fn all_nodes(metadata: &Metadata) -> usize {
    let nodes = metadata.node_types.iter().map(|(_, nodes)| count(*nodes));
    nodes.fold(0, usize::saturating_add)
}

fn count(nodes: u64) -> usize {
    usize::try_from(nodes).unwrap_or(usize::MAX)
}

/// For each type of nodes its part of a file of ParMETIS.
pub fn numbered(metadata: &Metadata) -> Vec<Source> {
    let mut first = 0usize;
    let of_type = |(_, nodes): &(String, u64)| {
        let own = first..first.saturating_add(count(*nodes));
        first = own.end;
        Source::Numbered(own)
    };
    metadata.node_types.iter().map(of_type).collect()
}

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
            [node, part] => node.parse::<u64>().ok().zip(part.parse::<u32>().ok()),
            _ => None,
        };
        let Some((node, part)) = numbers else {
            return Err("is not the number of a node and its partition".to_owned());
        };
        let all = self.0.len();
        match self.0.get_mut(count(node)) {
            Some(place @ None) => *place = Some(part),
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

/// The source for each node type.
pub fn sources(
    metadata: &Metadata,
    random: Option<u64>,
    given: &[String],
) -> Result<Vec<Source>, Report> {
    let types = &metadata.node_types;
    if let Some(seed) = random {
        // types must get different random numbers
        let drawn = (0u64..)
            .zip(types)
            .map(|(nth, _)| Source::Drawn(seed ^ nth << 32));
        return Ok(drawn.collect());
    }
    let mut report = Report::default();
    let mut files = vec![None; types.len()];
    for given in given {
        let is_type = |name: &str| types.iter().position(|(other, _)| other == name);
        let named = given
            .split_once('=')
            .and_then(|(name, file)| Some((is_type(name)?, file)));
        let of = match (named, types.len()) {
            (Some((of, file)), _) => Some((of, file)),
            (None, 1) => Some((0, given.as_str())),
            (None, _) => None,
        };
        match of {
            Some((of, file)) if files[of].is_none() => files[of] = Some(Source::File(file.into())),
            Some((of, _)) => {
                let problem = format!("{} is there twice", types[of].0);
                report.push(Fault::usage("--given", problem).fix("give one file for each type"));
            }
            None => {
                let names: Vec<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
                let problem = format!("{given} names no type of the graph");
                let fix = format!("write TYPE=FILE, with one of {}", names.join(", "));
                report.push(Fault::usage("--given", problem).fix(fix));
            }
        }
    }
    for ((name, _), _) in types.iter().zip(&files).filter(|(_, file)| file.is_none()) {
        let fault = Fault::usage("--given", format!("has no file for {name}"));
        report.push(fault.fix(format!("add --given {name}=FILE")));
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
    fn each_type_has_a_source() {
        let (one, two) = (metadata(&["n"]), metadata(&["a", "b=c"]));
        let given = |metadata: &Metadata, given: &[&str]| {
            let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
            sources(metadata, None, &given)
                .map_err(|report| report.0.iter().map(Fault::to_string).collect::<String>())
        };
        let file = |name: &str| Source::File(name.into());
        assert_eq!(given(&one, &["x=y.npy"]), Ok(vec![file("x=y.npy")]));
        assert_eq!(given(&one, &["n=y.npy"]), Ok(vec![file("y.npy")]));
        let drawn = sources(&two, Some(7), &[]).unwrap();
        assert!(drawn[0] == Source::Drawn(7) && drawn[1] != drawn[0]);
        let table = [
            (&["a=1", "a=2"][..], "--given: a is there twice"),
            (
                &["1"],
                "--given: 1 names no type of the graph\n  fix: write TYPE=FILE, with one of a, b=c",
            ),
            (&["a=1"], "--given: has no file for b=c"),
        ];
        for (files, problem) in table {
            let told = given(&two, files).unwrap_err();
            assert!(told.contains(problem), "{told}");
        }
    }

    #[test]
    fn parmetis_numbers_the_nodes_of_all_types() {
        let two = metadata(&["a", "b"]);
        let sources = [Source::Numbered(0..1), Source::Numbered(1..2)];
        assert_eq!((numbered(&two), all_nodes(&two)), (sources.to_vec(), 2));

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
        let told = check_empty(&[vec![1], vec![0, 0, 2]], 4).unwrap_err();
        assert_eq!(told.0[0].problem, "no node goes to partition 1, 3");
    }
}
