//! Collects a run's records. Most are lines of output, of which only each process's evidence is
//! kept, so memory does not grow with them.

use evidence::Evidence;
use record::jsonl::{Head, Stream};
use record::{Output, Process, Record as _, Role, Started};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct Run {
    /// Its records, except lines of output.
    pub(crate) stream: Stream,
    /// The evidence from each process's output since its last start, by its id.
    pub(crate) evidence: HashMap<u32, Evidence>,
    pub(crate) pauses: Pauses,
    /// The least number of last lines kept of each process.
    lines: usize,
    started: HashSet<u32>,
    servers: HashSet<u32>,
    /// The beginnings of lines that arrived in pieces.
    pieces: HashMap<(u32, bool), String>,
}

impl Run {
    /// Keeps at least this many of the last lines of each process.
    pub fn new(lines: usize) -> Run {
        Run {
            lines,
            ..Run::default()
        }
    }

    pub fn record(&mut self, head: &Head, text: &[u8]) {
        if head.r#type == Output::TYPE
            && let Ok(output) = Output::from_json(text)
        {
            return self.piece(&output);
        }
        let id = head.id.unwrap_or_default();
        if head.r#type == Process::TYPE && is_server(text) {
            self.servers.insert(id);
        }
        // output of an earlier attempt is no evidence for this one
        if head.r#type == Started::TYPE && !self.started.insert(id) {
            self.evidence.remove(&id);
        }
        self.stream.push(head, text);
    }

    fn piece(&mut self, output: &Output) {
        let is_stderr = output.stream == "stderr";
        let begun = self.pieces.entry((output.id, is_stderr)).or_default();
        let line = std::mem::take(begun) + &output.line;
        if output.partial {
            self.pauses.add(output.time_ms);
            *begun = line;
        } else {
            self.line(
                output.id,
                is_stderr,
                &line,
                output.time_ms,
                output.while_ending,
            );
        }
    }

    /// `while_ending`: the end of the job had begun before.
    pub fn line(&mut self, id: u32, is_stderr: bool, line: &str, time_ms: u64, while_ending: bool) {
        if !while_ending && !self.servers.contains(&id) {
            self.pauses.add(time_ms);
        }
        let evidence = self
            .evidence
            .entry(id)
            .or_insert_with(|| Evidence::keeping(self.lines));
        evidence.line(is_stderr, line, time_ms, while_ending);
    }

    /// The last lines of a process, those that explain its failure.
    pub fn last_lines(&self, id: u32) -> Vec<String> {
        self.evidence
            .get(&id)
            .into_iter()
            .flat_map(Evidence::last_lines)
            .map(|line| line.text.clone())
            .collect()
    }
}

fn is_server(process: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct RoleOnly {
        role: Role,
    }
    serde_json::from_slice::<RoleOnly>(process).is_ok_and(|process| process.role == Role::Server)
}

/// The pauses between lines of output that are longer than all later ones, with their beginnings,
/// in milliseconds.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    last_ms: Option<u64>,
    longest: Vec<(u64, u64)>,
}

impl Pauses {
    /// Adds the time of a line. Lines arrive in the order in which they were written, except for
    /// small differences between hosts, which make no pause.
    pub fn add(&mut self, time_ms: u64) {
        if let Some(last_ms) = self.last_ms {
            let pause_ms = time_ms.saturating_sub(last_ms);
            while self
                .longest
                .pop_if(|(_, other_ms)| *other_ms <= pause_ms)
                .is_some()
            {}
            if pause_ms > 0 {
                self.longest.push((last_ms, pause_ms));
            }
        }
        self.last_ms = self.last_ms.max(Some(time_ms));
    }

    /// The longest pause that began at that time or later, in milliseconds.
    pub fn longest_since(&self, time_ms: u64) -> u64 {
        self.longest
            .iter()
            .find(|(from_ms, _)| *from_ms >= time_ms)
            .map_or(0, |(_, pause_ms)| *pause_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_of_the_last_try_is_known() {
        let mut pauses = Pauses::default();
        let times = [0, 900, 1000, 1300, 1250, 1400, 1600, 1650];
        times.into_iter().for_each(|time_ms| pauses.add(time_ms));
        let table = [
            (0, 900),
            (1, 300),
            (900, 300),
            (1001, 200),
            (1600, 50),
            (1601, 0),
        ];
        for (since_ms, longest_ms) in table {
            assert_eq!(pauses.longest_since(since_ms), longest_ms, "{since_ms}");
        }
    }
}
