//! The stream: JSON lines in and out, and the rules that make a pipeline of tools safe in a plain
//! `sh`.
//!
//! 1. A tool copies every input line to its output byte for byte and adds its own. host-probe
//!    replaces the host records, part-push the pushed records.
//! 2. A record with `id` and `of` belongs to the set of its type: ids 0..of-1, each once, in any
//!    order. Every set must be complete and no record may have `"ok":false`, even if the tool does
//!    not need that set: so a stage that failed or was killed makes every later one fail. For the
//!    same reason an empty input is a failure. A terminal as input is a usage error.
//! 3. With `--partial` and `--host` (tools that act) sets may have holes, and a record that is not
//!    `ok` counts as one.
//! 4. A record that names a host names one of the host records.
//! 5. A tool reads its input to the end before it does anything.
//!
//! A value that spans several lines, as `jq .` prints it, is passed on as one line. Windows line
//! ends are white space. Memory holds the text and 40 bytes for each line.

mod input;
mod output;
mod rules;

pub use input::AtCut;
pub(crate) use input::{PIPELINE, stdin};
pub use output::{Out, append, line, print, print_more, with_fields};

use crate::encoded::edited;
use crate::error::{Fault, Report};
use crate::{Found, Host, Reaped, Record, Stack, Summary, TYPES};
use input::{cut, next_value, not_a_record};
use rules::{NamedHosts, StreamRules};
use serde::Deserialize;
use std::io::{BufReader, Read};

/// Room for the config of a graph with thousands of partitions (some 600 bytes each).
const MAX_LINE: usize = 64 << 20;
/// More than a job of 10,000 hosts with 100 processes each needs.
pub const MAX_SET: u32 = 4_000_000;
/// More hosts than the largest job has.
pub const MAX_HOSTS: u32 = 1 << 20;
/// Further faults of the stream are not informative.
const MAX_FAULTS: usize = 10;

#[derive(Default)]
pub struct Stream {
    /// The lines with their ends. A separate allocation for each would double the memory.
    text: Vec<u8>,
    lines: Vec<StreamLine>,
}

/// A line's position, and the fields of it that are needed again.
struct StreamLine {
    begin: usize,
    length: u32,
    /// Empty if no tool knows it.
    r#type: &'static str,
    id: Option<u32>,
    ok: Option<bool>,
}

/// The fields that all records share, parsed before the record itself.
#[derive(Deserialize, Default)]
pub struct Head {
    pub r#type: String,
    pub id: Option<u32>,
    of: Option<u32>,
    ok: Option<bool>,
    error: Option<String>,
    host: Option<u32>,
}

impl Head {
    pub fn parse(text: &[u8]) -> Result<Head, serde_json::Error> {
        #[derive(Deserialize)]
        struct TypeOnly {
            r#type: String,
        }
        serde_json::from_slice(text).or_else(|error| match serde_json::from_slice(text) {
            // a user's own record may give these names another meaning
            Ok(TypeOnly { r#type }) if !TYPES.contains(&r#type.as_str()) => Ok(Head {
                r#type,
                ..Head::default()
            }),
            _ => Err(error),
        })
    }
}

impl Stream {
    /// Reads stdin to its end and checks the rules. `partial` allows holes.
    pub fn from_stdin(partial: bool) -> Result<Stream, Report> {
        Stream::read(stdin(PIPELINE)?, partial)
    }

    /// Like [`Stream::from_stdin`], but reads any input.
    pub fn read(input: impl Read, partial: bool) -> Result<Stream, Report> {
        let mut stream = Stream::default();
        let at_cut = &|number| Err(cut(number));
        let mut hosts = NamedHosts::default();
        Stream::read_lines(input, partial, at_cut, |head, text| {
            hosts.add(head);
            stream.push(head, text);
        })?;
        if stream.lines.is_empty() {
            let problem = "nothing to do: the previous tool failed (see its message above)";
            return Err(Fault::data("stdin", problem).report());
        }
        hosts.check().map(|()| stream)
    }

    /// Like [`Stream::read`]; `at_cut` decides about an incomplete last line, by its number.
    pub fn read_lines(
        input: impl Read,
        partial: bool,
        at_cut: AtCut<'_>,
        mut take: impl FnMut(&Head, &[u8]),
    ) -> Result<(), Report> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut rules = StreamRules::new(partial);
        let mut number = 0u64;
        loop {
            let begun = number + 1;
            let Some(text) = next_value(&mut input, &mut number, at_cut)? else {
                break;
            };
            let head = Head::parse(&text).map_err(|error| not_a_record(begun, &text, &error))?;
            rules.follow(&head, &text)?;
            take(&head, &text);
        }
        rules.finish()
    }

    pub fn push(&mut self, head: &Head, text: &[u8]) {
        self.lines.push(StreamLine {
            begin: self.text.len(),
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
            r#type: TYPES
                .iter()
                .find(|name| **name == head.r#type)
                .copied()
                .unwrap_or_default(),
            id: head.id,
            ok: head.ok,
        });
        self.text.extend_from_slice(text);
        self.text.push(b'\n');
    }

    fn text_of(&self, line: &StreamLine) -> &[u8] {
        &self.text[line.begin..][..line.length as usize]
    }

    /// The records of a type by id, without those with `"ok":false`.
    pub fn all<T: Record>(&self) -> Result<Vec<T>, Report> {
        self.set_of(|line| line.ok != Some(false))
    }

    /// Like [`Stream::all`], including those with `"ok":false`.
    pub fn all_including_failed<T: Record>(&self) -> Result<Vec<T>, Report> {
        self.set_of(|_| true)
    }

    fn set_of<T: Record>(&self, wanted: fn(&StreamLine) -> bool) -> Result<Vec<T>, Report> {
        let of_type = |_, line: &StreamLine| line.r#type == T::TYPE && wanted(line);
        let mut records = self.parse(of_type, |_, text| T::from_json(text))?;
        records.sort_by_key(|(id, _)| *id);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// In input order, as `parse` reads the text of each.
    pub fn in_order<T>(
        &self,
        types: &[&str],
        parse: impl Fn(&str, &[u8]) -> serde_json::Result<T>,
    ) -> Result<Vec<T>, Report> {
        let records = self.parse(|_, line| types.contains(&line.r#type), parse)?;
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// The wanted records with their ids, in input order. `parse` gets the type and the text.
    fn parse<T>(
        &self,
        wanted: impl Fn(usize, &StreamLine) -> bool,
        parse: impl Fn(&str, &[u8]) -> serde_json::Result<T>,
    ) -> Result<Vec<(Option<u32>, T)>, Report> {
        let mut records = Vec::new();
        let mut report = Report::default();
        for (_, line) in self
            .lines
            .iter()
            .enumerate()
            .filter(|(position, line)| wanted(*position, line))
        {
            match parse(line.r#type, self.text_of(line)) {
                Ok(record) => records.push((line.id, record)),
                Err(error) => {
                    let id = line.id.map_or(String::new(), |id| format!(" {id}"));
                    report.push(edited(
                        format!("stdin: {} record{id}", line.r#type),
                        error.to_string(),
                    ));
                }
            }
            if report.0.len() >= MAX_FAULTS {
                break;
            }
        }
        report.check()?;
        Ok(records)
    }

    /// At least one record of a type. `from` names the tool that writes them.
    pub fn require<T: Record>(&self, from: &str) -> Result<Vec<T>, Report> {
        let records = self.all()?;
        if records.is_empty() {
            let fault = Fault::data("stdin", format!("no {} record in the input", T::TYPE));
            return Err(fault
                .fix(format!("put {from} into the pipeline before this tool"))
                .report());
        }
        Ok(records)
    }

    /// `None` if there is no record of the type, a fault if there are several.
    pub fn one<T: Record>(&self) -> Result<Option<T>, Report> {
        let mut records = self.all()?;
        match records.len() {
            0 | 1 => Ok(records.pop()),
            several => Err(Fault::data(
                "stdin",
                format!("{several} {} records, where one is enough", T::TYPE),
            )
            .fix("create the stream again, starting with ipconf-check")
            .report()),
        }
    }

    /// The last summary of a job. Tools that only ask hosts write summaries too; in 0.2.0 they do
    /// not name themselves, but write their answers right before the summary.
    pub fn end(&self) -> Result<Option<Summary>, Report> {
        let answers = [Stack::TYPE, Found::TYPE, Reaped::TYPE];
        let is_of_job = |position: usize, line: &StreamLine| {
            let before = position
                .checked_sub(1)
                .map(|before| self.lines[before].r#type);
            line.r#type == Summary::TYPE && before.is_none_or(|earlier| !answers.contains(&earlier))
        };
        let mut ends = self.parse(is_of_job, |_, text| Summary::from_json(text))?;
        ends.retain(|(_, summary)| summary.tool.is_none());
        Ok(ends.pop().map(|(_, summary)| summary))
    }

    pub fn has<T: Record>(&self) -> bool {
        self.lines.iter().any(|line| line.r#type == T::TYPE)
    }

    /// All lines unchanged, without the records of one type, and with these host records instead.
    pub fn bytes_but(&self, left_out: &str, changed: &[Host]) -> Vec<u8> {
        let lines = self
            .lines
            .iter()
            .filter(|line| left_out.is_empty() || line.r#type != left_out);
        let mut all = Vec::new();
        for line in lines {
            let id = line.id.filter(|_| line.r#type == Host::TYPE);
            match changed.iter().find(|host| Some(host.id) == id) {
                Some(host) => append(host, &mut all),
                None => {
                    all.extend_from_slice(self.text_of(line));
                    all.push(b'\n');
                }
            }
        }
        all
    }

    /// Every line without its end, with the id of a host record that is not marked as failed.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], Option<u32>)> {
        let host = |line: &StreamLine| {
            line.id
                .filter(|_| line.r#type == Host::TYPE && line.ok != Some(false))
        };
        self.lines
            .iter()
            .map(move |line| (self.text_of(line), host(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, partial: bool) -> Result<Vec<String>, String> {
        match Stream::read(text.as_bytes(), partial) {
            Ok(stream) => Ok(stream
                .lines()
                .map(|(line, _)| String::from_utf8(line.to_vec()).unwrap())
                .collect()),
            Err(report) => Err(report
                .0
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")),
        }
    }

    const A: &str = r#"{"type":"host","id":0,"of":2,"ip":"10.0.0.1","port":30050}"#;
    const B: &str = r#"{"type":"host", "id":1,"of":2,"ip":"10.0.0.2","port":30050,"unknown":1.50}"#;
    const FILE: &str = r#"{"type":"file","id":0,"of":1,"host":1,"kind":"extra"}"#;
    const GRAPH: &str = concat!(
        r#"{"type":"graph","graph_name":"g","num_parts":2,"files":3,"workspace":"/w","#,
        r#""part_config":"g.json","ip_config":"ip.txt"}"#
    );

    #[test]
    fn lines_pass_byte_for_byte() {
        let odd =
            r#"{"type":"unheard-of","id":"x","of":-1,"ok":"yes","host":{"a":1},"x":[1e400,"ä"]}"#;
        assert_eq!(
            read(&format!("{B}\n{odd}\n\n{A}\n"), false),
            Ok(vec![B.into(), odd.into(), A.into()])
        );
        assert_eq!(
            read(&format!("{A}\n{B}"), false),
            Ok(vec![A.into(), B.into()]),
            "the last newline may be missing"
        );
        assert_eq!(
            read(&format!("{A}\r\n{B}\r\n"), false),
            Ok(vec![format!("{A}\r"), format!("{B}\r")]),
            "white space behind a record"
        );
    }

    #[test]
    fn what_jq_spreads_over_lines_comes_together() {
        let spread = "{\n  \"type\": \"x\",\n  \"t\": \"a \\\" b\"\n}\n";
        let together: Vec<String> = vec![r#"{"type":"x","t":"a \" b"}"#.into()];
        assert_eq!(read(spread, false).as_ref(), Ok(&together));
        assert_eq!(
            read(&spread.replace('\n', "\r\n"), false),
            Ok(together),
            "as Windows ends lines"
        );
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn broken_streams() {
        let table = [
            (String::new(), "nothing to do: the previous tool failed"),
            (
                A.to_owned(),
                "1 of 2 host records are missing, the first is 1",
            ),
            (format!("{A}\n{A}\n{B}"), "id 0 occurs twice"),
            (
                format!("{A}\n{}", &B[..20]),
                "line 2 breaks off in the middle of a record",
            ),
            (
                format!("{A}\n{}\n", &B[..20]),
                "line 2 breaks off in the middle of a record",
            ),
            (
                format!("{A}\n{}", B.replace(":2,\"ip", ":3,\"ip")),
                "one has \"of\":2, another 3",
            ),
            (A.replace(":2,\"ip", ":4000000000,\"ip"), "is more than"),
            (
                format!("{A}\n{}", B.replace("\"id\":1", "\"id\":2")),
                "id 2 is not below 2",
            ),
            (
                format!(
                    "{A}\n{}",
                    B.replace("}", ",\"ok\":false,\"error\":\"no route\"}")
                ),
                "host 1 failed: no route",
            ),
            (
                format!("{A}\n{B}\n{GRAPH}"),
                "3 of 3 file records are missing, the first is 0",
            ),
            ("hello\n".to_owned(), "line 1: not a record"),
            (
                "[1]\n".to_owned(),
                "line 1: not a record: an array, as jq -s makes it",
            ),
            (
                format!("[\n  {A}\n]\n"),
                "line 1: not a record: an array, as jq -s makes it",
            ),
            (
                format!("\u{feff}{A}\n{B}\n"),
                "line 1: not a record: it begins with a byte order mark",
            ),
            (
                format!("{A}\n\u{feff}{B}\n"),
                "line 2: not a record: it begins with a byte order mark",
            ),
            (
                A.chars().flat_map(|c| [c, '\0']).collect(),
                "line 1: not a record: it is UTF-16",
            ),
            (
                format!("{A}\r\n{}\r\n", &B[..20]),
                "line 2 breaks off in the middle of a record",
            ),
            // later lines cannot make these valid
            (
                A.replace(":2,\"ip", ":1048577,\"ip"),
                "host records: of 1048577 is more than 1048576",
            ),
            (format!("{A}\n{B}\n{A}\nhello"), "id 0 occurs twice"),
            (format!("{A}\n").repeat(3), "id 0 occurs twice"),
            ("{}\n".to_owned(), "missing field `type`"),
            (
                format!("{}\n{A}\n{B}", FILE.replace("host\":1", "host\":2")),
                "stdin: file record 0: names host 2, but the stream has 2",
            ),
        ];
        for (text, problem) in table {
            let got = read(&text, false).expect_err(problem);
            assert!(got.contains(problem), "{text}: {got}");
        }
    }

    #[test]
    fn of_a_run_only_the_last_line_may_break_off() {
        let table = [
            (format!("{A}\n{}", &B[..20]), Ok(1)),
            (format!("{A}\n{B}\n{{\n  \"type\": \"x\",\n"), Ok(2)),
            (format!("{A}\n{B}"), Ok(2)),
            (format!("{A}\n{}\n{B}\n", &B[..20]), Err(())),
            (format!("{A}\nhello"), Err(())),
            (B[..20].to_owned(), Ok(0)),
        ];
        for (text, lines) in table {
            let mut count = 0;
            let read = Stream::read_lines(text.as_bytes(), true, &|_| Ok(()), |_, _| count += 1);
            assert_eq!(read.map(|()| count).map_err(|_| ()), lines, "{text}");
        }
    }

    #[test]
    fn a_job_has_not_ended_because_hosts_have_answered() {
        let end = r#"{"type":"summary","ok":false,"code":1,"elapsed_ms":7}"#;
        let stack = r#"{"type":"stack","job":"j","host":0,"pid":7,"command":"x","time_ms":9}"#;
        let old = r#"{"type":"summary","ok":true,"code":0,"elapsed_ms":8}"#;
        let asked = crate::Summary::of_questions("dgl-reap", crate::exit::Exit::Done, 8, None);
        let asked = String::from_utf8(line(&asked)).unwrap();
        for later in [asked, format!("{stack}\n{old}\n")] {
            let of = |text: String| {
                let stream = Stream::read(text.as_bytes(), true).map_err(|_| ());
                let end = stream.unwrap().end().map_err(|_| ()).unwrap();
                end.map(|end| end.elapsed_ms)
            };
            assert_eq!(of(format!("{A}\n{later}")), None);
            assert_eq!(of(format!("{A}\n{end}\n{later}")), Some(7));
        }
    }

    #[test]
    fn partial_streams_may_have_holes() {
        let failed = B.replace("}", ",\"ok\":false}");
        let stream = Stream::read(format!("{A}\n{failed}").as_bytes(), true)
            .map_err(|report| format!("{report:?}"))
            .unwrap();
        assert_eq!(stream.all::<Host>().unwrap().len(), 1);
        assert!(read(&format!("{A}\n{A}"), true).is_err(), "twice is twice");
        assert!(read("", true).is_err());
    }

    #[test]
    fn type_comes_first() {
        let text = line(&crate::Dropped {
            lines: 3,
            time_ms: 4,
        });
        assert_eq!(text, b"{\"type\":\"dropped\",\"lines\":3,\"time_ms\":4}\n");
    }
}
