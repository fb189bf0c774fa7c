//! The records of a run that may have failed, been cut short or still be written. Most of them are
//! lines of output, of which only the end of each process is kept: memory does not grow with them.

use crate::error::{Fault, Report};
use crate::jsonl::{self, Head, Stream};
use crate::{Output, Process, Record, Role, stderr};
use serde::Deserialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// As much of a process is kept, of what it wrote before the end of the job and once more of what
/// it wrote after: the stacks that faulthandler writes for a process with some samplers.
const KEPT_BYTES: usize = 256 << 10;

/// A run.
#[derive(Default)]
pub struct Run {
    /// Its records, but for lines of output that are not kept.
    pub stream: Stream,
    /// The pauses between all lines of output.
    pub pauses: Pauses,
}

impl Run {
    /// Reads stdin if `file` is absent or `-`. Sets may have holes, and a last line that breaks off
    /// is left out, which `tool` says. Keeps at least this many of the last `lines` of output of a
    /// process.
    pub fn read(tool: &str, file: Option<&Path>, lines: usize) -> Result<Run, Report> {
        let leave_out = |location: &str, number: u64| {
            stderr::write_line(format_args!(
                "{tool}: {location}: line {number} breaks off; the records before it are read"
            ));
            Ok(())
        };
        let name = file.filter(|file| *file != "-");
        let name = name.map_or("stdin".to_owned(), |file| file.display().to_string());
        Run::of(open(file)?, lines, &|number| leave_out(&name, number))
            .map_err(|report| report.of_file(&name))
    }

    /// Like [`Run::read`], of any input; `at_cut` decides about a last line that breaks off.
    pub fn of(input: impl Read, lines: usize, at_cut: jsonl::AtCut<'_>) -> Result<Run, Report> {
        let (mut run, mut numbers, mut number) = (Run::default(), Vec::new(), 0);
        let mut servers = HashSet::new();
        let mut tails: HashMap<(Option<u32>, bool), Tail> = HashMap::new();
        Stream::read_lines(input, true, at_cut, |head, text| {
            number += 1;
            if head.r#type == Process::TYPE && is_server(text) {
                servers.extend(head.id);
            }
            let written = Some(text).filter(|_| head.r#type == Output::TYPE);
            match written.and_then(|text| serde_json::from_slice::<Written>(text).ok()) {
                None => {
                    run.stream.push(head, text);
                    numbers.push(number);
                }
                Some(Written {
                    time_ms,
                    while_ending,
                }) => {
                    if !while_ending && head.id.is_none_or(|id| !servers.contains(&id)) {
                        run.pauses.add(time_ms);
                    }
                    let tail = tails.entry((head.id, while_ending)).or_default();
                    tail.push(number, text, lines);
                }
            }
        })?;
        for tail in tails.into_values() {
            for (number, text) in tail.first.into_iter().chain(tail.last) {
                if let Ok(head) = Head::of(&text) {
                    run.stream.push(&head, &text);
                    numbers.push(number);
                }
            }
        }
        run.stream.sort(numbers);
        Ok(run)
    }
}

/// The records of a run as they come: of stdin if `file` is absent or `-`.
fn open(file: Option<&Path>) -> Result<Box<dyn BufRead>, Report> {
    let Some(file) = file.filter(|file| *file != "-") else {
        return Ok(Box::new(jsonl::stdin()?));
    };
    let opened = std::fs::File::open(file).map_err(|error| {
        Fault::unreachable(file.display().to_string(), error.to_string())
            .fix("name the file that has dgl-spawn's records")
    })?;
    Ok(Box::new(BufReader::new(opened)))
}

/// What must be known of a line of output.
#[derive(Deserialize)]
struct Written {
    time_ms: u64,
    #[serde(default)]
    while_ending: bool,
}

fn is_server(process: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Of {
        role: Role,
    }
    serde_json::from_slice::<Of>(process).is_ok_and(|of| of.role == Role::Server)
}

/// The first and the last records of output of a process, by their numbers in the stream.
#[derive(Default)]
struct Tail {
    first: Option<(u64, Vec<u8>)>,
    last: VecDeque<(u64, Vec<u8>)>,
    /// The bytes of the last ones.
    bytes: usize,
}

impl Tail {
    fn push(&mut self, number: u64, text: &[u8], least: usize) {
        self.bytes += text.len();
        self.last.push_back((number, text.to_vec()));
        while self.bytes > KEPT_BYTES && self.last.len() > least.max(1) {
            let Some((number, text)) = self.last.pop_front() else {
                break;
            };
            self.bytes -= text.len();
            self.first.get_or_insert((number, text));
        }
    }
}

/// The pauses between lines of output: each that is longer than all later ones, with the time at
/// which it began.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    last_ms: Option<u64>,
    longest: Vec<(u64, u64)>,
}

impl Pauses {
    /// Adds the time of a line. Lines come in the order in which they were written, but for what
    /// moves between hosts, which makes no pause.
    pub fn add(&mut self, time_ms: u64) {
        if let Some(last_ms) = self.last_ms {
            let pause_ms = time_ms.saturating_sub(last_ms);
            let is_shorter = |(_, other_ms): &(u64, u64)| *other_ms <= pause_ms;
            while self.longest.pop_if(|one| is_shorter(one)).is_some() {}
            if pause_ms > 0 {
                self.longest.push((last_ms, pause_ms));
            }
        }
        self.last_ms = self.last_ms.max(Some(time_ms));
    }

    /// The longest pause that began at that time or later, in milliseconds.
    pub fn longest_since(&self, time_ms: u64) -> u64 {
        let mut later = self
            .longest
            .iter()
            .filter(|(from_ms, _)| *from_ms >= time_ms);
        later.next().map_or(0, |(_, pause_ms)| *pause_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(id: u32, time_ms: u64, rest: &str) -> String {
        format!(
            "{{\"type\":\"output\",\"id\":{id},\"stream\":\"stdout\",\"line\":\"{}\",\
             \"time_ms\":{time_ms}{rest}}}\n",
            "x".repeat(900)
        )
    }

    #[test]
    fn of_the_output_the_end_of_each_process_is_kept() {
        let host = r#"{"type":"host","id":0,"of":1,"ip":"10.0.0.1","port":30050}"#;
        let mut text = output(7, 1, "");
        text += &(0..1000).map(|at| output(0, at, "")).collect::<String>();
        text += host;
        text.push('\n');
        text += &(1000..2000)
            .map(|at| output(0, at, r#","while_ending":true"#))
            .collect::<String>();
        let run = Run::of(text.as_bytes(), 5, &|_| Ok(()))
            .map_err(|_| ())
            .unwrap();
        let kept: Vec<&[u8]> = run.stream.lines().map(|(line, _)| line).collect();
        let bytes: usize = kept.iter().map(|line| line.len()).sum();
        assert!((KEPT_BYTES..3 * KEPT_BYTES).contains(&bytes), "{bytes}");
        let output: Vec<Output> = run.stream.all().map_err(|_| ()).unwrap();
        let times = |id: u32| {
            output
                .iter()
                .filter(|one| one.id == id)
                .map(|one| one.time_ms)
                .collect::<Vec<_>>()
        };
        assert_eq!(times(7), [1]);
        let of_0 = times(0);
        assert!(of_0.is_sorted() && of_0[0] == 0 && of_0.contains(&999) && of_0.contains(&1000));
        assert!(of_0.contains(&1999) && !of_0.contains(&500) && !of_0.contains(&1500));
        let at = kept
            .iter()
            .position(|line| *line == host.as_bytes())
            .unwrap();
        let before = kept[..at]
            .iter()
            .filter(|line| line.ends_with(b"true}"))
            .count();
        assert_eq!(before, 0, "records stay in their order");

        let all = Run::of(text.as_bytes(), 5000, &|_| Ok(()))
            .map_err(|_| ())
            .unwrap();
        assert_eq!(all.stream.lines().count(), 2002);
    }

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
