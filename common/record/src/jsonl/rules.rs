//! The rules of the stream, which [`super`] lists.

use super::{Head, MAX_FAULTS, MAX_HOSTS, MAX_SET};
use crate::error::{Fault, Report};
use crate::{FileCopy, Graph, Host, Record, TYPES, term};
use std::collections::BTreeMap;

const WHOLE: &str = "run the previous tool again to its end, for all hosts (without --host) and \
    without a filter; only tools that reach hosts accept a part, with --partial";

/// Checks each line as it arrives, so that a wrong one is refused before the end.
#[derive(Default)]
pub struct StreamRules {
    partial: bool,
    report: Report,
    /// What the first record of a failed stage says.
    failed: Option<String>,
    /// How many records are of a failed stage.
    failed_count: u64,
    sets: BTreeMap<String, Set>,
}

impl StreamRules {
    pub fn new(partial: bool) -> StreamRules {
        StreamRules {
            partial,
            ..StreamRules::default()
        }
    }

    /// `Err` if later lines cannot make it valid, or at [`MAX_FAULTS`].
    pub fn follow(&mut self, head: &Head, text: &[u8]) -> Result<(), Report> {
        if head.r#type == Graph::TYPE
            && let Ok(Graph {
                files: of @ 1.., ..
            }) = serde_json::from_slice(text)
        {
            // The graph record gives the number of file records, so a stream that lacks them all is
            // found.
            self.set(FileCopy::TYPE, of);
        }
        if head.ok == Some(false) && !self.partial {
            self.failed.get_or_insert_with(|| failed(head));
            self.failed_count += 1;
        }
        let mut is_hopeless = false;
        if let (Some(id), Some(of)) = (head.id, head.of) {
            let is_host = head.r#type == Host::TYPE;
            let most = if is_host { MAX_HOSTS } else { MAX_SET };
            let set = self.set(&head.r#type, of);
            if let Some(problem) = set.add(id, of, most) {
                is_hopeless = of > most || set.ids.len() > set.of as usize;
                self.report.push(set_fault(&head.r#type, &problem));
            }
        }
        if is_hopeless || self.report.0.len() >= MAX_FAULTS {
            return Err(std::mem::take(&mut self.report));
        }
        Ok(())
    }

    fn set(&mut self, name: &str, of: u32) -> &mut Set {
        self.sets.entry(name.to_owned()).or_insert_with(|| Set {
            of,
            ids: Vec::new(),
        })
    }

    pub fn finish(mut self) -> Result<(), Report> {
        if let Some(first) = &self.failed {
            self.report.push(match self.failed_count - 1 {
                0 => before(first),
                more => before(format!("{first}; and {}", term::count(more, "more record"))),
            });
        }
        for (name, set) in &mut self.sets {
            set.ids.sort_unstable();
            let room = MAX_FAULTS.saturating_sub(self.report.0.len());
            let twice = set.twice().take(room);
            self.report
                .0
                .extend(twice.map(|problem| set_fault(name, &problem)));
        }
        if !self.partial {
            self.report.0.extend(
                self.sets
                    .iter_mut()
                    .filter_map(|(name, set)| set.hole(name))
                    .map(|hole| Fault::data("stdin", hole).fix(WHOLE)),
            );
        }
        self.report.check()
    }
}

/// The hosts that records name, which must be in the stream. With `--partial` the record of a host
/// may be missing, but its id must be below `of`. Tools that only explain a run do not check this.
#[derive(Default)]
pub struct NamedHosts {
    of: Option<u32>,
    /// The first record that names each host.
    named: BTreeMap<u32, String>,
}

impl NamedHosts {
    pub fn add(&mut self, head: &Head) {
        if head.r#type == Host::TYPE {
            self.of = self.of.or(head.of);
        }
        if let Some(host) = head.host.filter(|_| TYPES.contains(&head.r#type.as_str())) {
            self.named.entry(host).or_insert_with(|| match head.id {
                Some(id) => format!("{} record {id}", head.r#type),
                None => format!("a {} record", head.r#type),
            });
        }
    }

    pub fn check(&self) -> Result<(), Report> {
        let Some(of) = self.of else { return Ok(()) };
        let faults = self
            .named
            .range(of..)
            .take(MAX_FAULTS)
            .map(|(host, record)| {
                let problem = format!("names host {host}, but the stream has {of}");
                Fault::data(format!("stdin: {record}"), problem).fix(
                    "hosts count from 0: correct the edited records, or create the stream again",
                )
            });
        Report(faults.collect()).check()
    }
}

fn set_fault(name: &str, problem: &str) -> Fault {
    Fault::data("stdin", format!("{name} records: {problem}")).fix(
        "use the records of one pipeline only: create the stream again, starting with ipconf-check",
    )
}

/// The ids of one type in input order, 4 bytes each. A number in a record never determines how much
/// memory is allocated.
struct Set {
    of: u32,
    ids: Vec<u32>,
}

impl Set {
    fn add(&mut self, id: u32, of: u32, most: u32) -> Option<String> {
        if of != self.of {
            return Some(format!("one has \"of\":{}, another {of}", self.of));
        }
        if of > most {
            return Some(format!("of {of} is more than {most}"));
        }
        if id >= of {
            return Some(format!("id {id} is not below {of}"));
        }
        self.ids.push(id);
        if self.ids.len() <= of as usize {
            return None;
        }
        self.ids.sort_unstable();
        self.twice().next()
    }

    /// Each id that occurs more than once. The ids must be sorted.
    fn twice(&self) -> impl Iterator<Item = String> {
        self.ids
            .chunk_by(|one, other| one == other)
            .filter(|same| same.len() > 1)
            .map(|same| format!("id {} occurs twice", same[0]))
    }

    /// What is missing. The ids must be sorted.
    fn hole(&mut self, name: &str) -> Option<String> {
        self.ids.dedup();
        let missing = self.of as usize - self.ids.len();
        let first = (0..)
            .zip(&self.ids)
            .find(|(location, id)| location != *id)
            .map_or(self.ids.len() as u32, |(location, _)| location);
        (missing > 0).then(|| {
            format!(
                "{missing} of {} {name} records are missing, the first is {first}",
                self.of
            )
        })
    }
}

fn failed(head: &Head) -> String {
    let item = match (head.host, head.id) {
        (Some(host), Some(id)) => format!("{} {id} (host {host})", head.r#type),
        (_, Some(id)) => format!("{} {id}", head.r#type),
        _ => head.r#type.clone(),
    };
    format!(
        "{item} failed: {}",
        head.error.as_deref().unwrap_or("ok is false")
    )
}

pub fn before(problem: impl std::fmt::Display) -> Fault {
    Fault::data("stdin", format!("the previous tool failed: {problem}"))
}
