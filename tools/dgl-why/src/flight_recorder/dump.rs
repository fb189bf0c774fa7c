//! A dump of torch's flight recorder: the latest operations of one rank, as
//! torch/csrc/distributed/c10d/FlightRecorderDetail.hpp writes them (before torch 2.6 its
//! TraceUtils.h).

use super::pickle::{Node, Pickle};
use record::stacks;
use std::collections::BTreeMap;

// A pickle can name one long list many times; these limits keep such a file from filling the
// memory.
/// dgl-env asks for 2000 operations.
const MAX_OPERATIONS: usize = 100_000;
/// A rank has the groups to which it belongs.
const MAX_GROUPS: usize = 1000;
/// In bytes: the ranks of a group of 10,000.
const MAX_RANKS: usize = 64 << 10;
/// In bytes: names, and what is said and compared of the tensors of an operation.
const MAX_TEXT: usize = 1000;
/// Of the innermost frames of a stack.
const MAX_FRAMES: usize = 100;

/// What one rank has noted.
#[derive(Debug, Default)]
pub struct Dump {
    /// The file, below the folder of all dumps.
    pub file: String,
    /// The ranks of groups, by the group's name.
    pub groups: BTreeMap<String, Vec<u32>>,
    /// From the oldest to the newest.
    pub operations: Vec<Operation>,
    /// Whether operations before these have been overwritten.
    pub has_forgotten: bool,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Completed,
    /// It was scheduled or started.
    Pending,
    /// It completed or timed out; gloo's recorder does not tell which.
    Ended,
}

impl State {
    pub fn words(self) -> &'static str {
        match self {
            State::Completed => "completed",
            State::Pending => "not completed",
            State::Ended => "completed or timed out",
        }
    }
}

/// An operation of one rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The group's name, which all its ranks have in common.
    pub group: String,
    /// The group's name for people: what the script calls it.
    pub group_words: String,
    /// The number of the operation among those of its group, alike on all ranks; among the
    /// point-to-point operations of this rank in the group if it is one.
    pub sequence: u64,
    pub is_p2p: bool,
    /// Without the backend: `all_reduce`.
    pub name: String,
    /// The sizes and types of the tensors: `[4] Float`.
    pub input: String,
    pub output: String,
    pub state: State,
    /// Where the script began it, in the user's own code: `train (train.py:30)`.
    pub frame: Option<String>,
    pub created_ns: i64,
}

impl Dump {
    /// Reads a dump. An error says what is wrong and where.
    pub fn read(file: String, bytes: &[u8]) -> Result<Dump, String> {
        let pickle = Pickle::read(bytes)?;
        let root = pickle.root();
        let version = root
            .get("version")
            .and_then(|version| version.text(MAX_TEXT));
        let version = version.ok_or("it has no version, so it is no dump of torch's")?;
        if !version.starts_with("2.") {
            return Err(format!(
                "its format has version {version}; known are those from 2.0 on"
            ));
        }
        let entries = root.get("entries").ok_or("it has no entries")?;
        if entries.items().count() > MAX_OPERATIONS {
            return Err(format!("it has more than {MAX_OPERATIONS} operations"));
        }
        let read = |(at, entry)| {
            let operation = Operation::read(entry);
            operation.ok_or_else(|| format!("entry {at} lacks what every operation has"))
        };
        let operations = entries.items().enumerate().map(read);
        let first = entries.items().next();
        let first = first.and_then(|entry| entry.get("record_id")?.int());
        Ok(Dump {
            file,
            groups: groups(root),
            operations: operations.collect::<Result<_, _>>()?,
            has_forgotten: first > Some(0),
        })
    }

    /// The ranks of the group of an operation, if the dump names them.
    pub fn ranks(&self, operation: &Operation) -> Option<&Vec<u32>> {
        // gloo's recorder names none of its groups; what it has is the latest one
        let unnamed = || {
            self.groups
                .get("")
                .filter(|_| operation.group_words == "default_pg")
        };
        let ranks = self.groups.get(&operation.group).or_else(unnamed);
        ranks.filter(|ranks| !ranks.is_empty())
    }
}

fn groups(root: Node<'_>) -> BTreeMap<String, Vec<u32>> {
    let groups = root.get("pg_config").into_iter().flat_map(Node::pairs);
    let group = |(name, config): (Node<'_>, Node<'_>)| {
        let ranks = config.get("ranks")?.text(MAX_RANKS)?;
        let ranks = ranks.trim_matches(['[', ']']).split(", ");
        let ranks = ranks.filter_map(|rank| rank.parse().ok()).collect();
        Some((name.text(MAX_TEXT)?.into_owned(), ranks))
    };
    groups.take(MAX_GROUPS).filter_map(group).collect()
}

impl Operation {
    fn read(entry: Node<'_>) -> Option<Operation> {
        let text = |key: &str| Some(entry.get(key)?.text(MAX_TEXT)?.into_owned());
        let number = |key: &str| entry.get(key)?.int();
        let mut names = entry.get("process_group")?.items();
        let mut group_name = || Some(names.next()?.text(MAX_TEXT)?.into_owned());
        let (group, words) = (group_name()?, group_name()?);
        let is_p2p = number("is_p2p")? == 1;
        let sequence = if is_p2p {
            "p2p_seq_id"
        } else {
            "collective_seq_id"
        };
        let full_name = text("profiling_name")?;
        let (backend, name) = full_name.split_once(':').unwrap_or(("", &full_name));
        let state = match text("state")?.as_str() {
            "completed" => State::Completed,
            _ if backend == "gloo" && number("retired") == Some(1) => State::Ended,
            _ => State::Pending,
        };
        Some(Operation {
            group_words: match words.as_str() {
                "" | "undefined" => format!("group {group}"),
                _ => words,
            },
            group,
            sequence: u64::try_from(number(sequence)?).ok()?,
            is_p2p,
            name: name.to_owned(),
            input: tensors(entry, "input_sizes", "input_dtypes"),
            output: tensors(entry, "output_sizes", "output_dtypes"),
            state,
            frame: entry.get("frames").and_then(own_frame),
            created_ns: number("time_created_ns")?,
        })
    }

    /// The operation in words: `all_reduce 4 of default_pg`. Of one between two ranks neither the
    /// number nor their places in the group tell people anything.
    pub fn words(&self) -> String {
        let (name, group) = (&self.name, &self.group_words);
        match name.split_once(' ').filter(|_| self.is_p2p) {
            Some((name, _)) => format!("{name} of {group}"),
            None => format!("{name} {} of {group}", self.sequence),
        }
    }

    /// What the tensors of all ranks must have in common. Ranks may gather, scatter and exchange
    /// different amounts.
    pub fn common(&self) -> &str {
        let name = self.name.to_ascii_lowercase();
        let name = name.trim_start_matches('_');
        if name.starts_with("all_gather") || name.starts_with("allgather") {
            return &self.output;
        }
        let differs = ["gather", "scatter", "all_to_all", "alltoall", "coalesced"];
        match differs.iter().any(|start| name.starts_with(start)) {
            true => "",
            false => &self.input,
        }
    }
}

/// The sizes of tensors and their types: `[4] [2, 3] Float`.
fn tensors(entry: Node<'_>, sizes: &str, types: &str) -> String {
    let mut all = String::new();
    for tensor in entry.get(sizes).into_iter().flat_map(Node::items) {
        if all.len() > MAX_TEXT {
            return all + "…";
        }
        let sizes = tensor.items().take(MAX_TEXT).filter_map(Node::int);
        let sizes: Vec<String> = sizes.map(|size| size.to_string()).collect();
        all += &format!("[{}] ", sizes.join(", "));
    }
    let kinds = entry.get(types).into_iter().flat_map(Node::items);
    let mut kinds: Vec<_> = kinds
        .take(MAX_TEXT)
        .filter_map(|kind| kind.text(20))
        .collect();
    kinds.dedup();
    all + &kinds.join(" ")
}

/// The innermost frame in the user's own code.
fn own_frame(frames: Node<'_>) -> Option<String> {
    let frame = |frame: Node<'_>| {
        let file = frame.get("filename")?.text(MAX_TEXT)?;
        let (name, line) = (
            frame.get("name")?.text(MAX_TEXT)?,
            frame.get("line")?.int()?,
        );
        Some(format!("{name} ({}:{line})", short(&file)))
    };
    let frames: Vec<String> = frames.items().take(MAX_FRAMES).filter_map(frame).collect();
    stacks::own_frame(&frames).map(str::to_owned)
}

/// A file as py-spy shows it in the stacks of dgl-stacks: those of packages with their folders, all
/// others without.
fn short(file: &str) -> &str {
    let of_package = file.split_once("-packages/").map(|(_, rest)| rest);
    let of_python = || {
        let (_, rest) = file.rsplit_once("/lib/python3")?;
        Some(rest.split_once('/')?.1)
    };
    of_package
        .or_else(of_python)
        .unwrap_or_else(|| file.rsplit_once('/').map_or(file, |(_, name)| name))
}
