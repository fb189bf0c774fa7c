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

use crate::encoded::edited;
use crate::error::{Fault, Report};
use crate::{FileCopy, Found, Graph, Host, Reaped, Record, Stack, Summary, TYPES};
use crate::{stderr, term};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, Value, to_raw_value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};

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
        Stream::read(stdin()?, partial)
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
        let mut rules = StreamRules {
            partial,
            report: Report::default(),
            failed: None,
            failed_count: 0,
            sets: BTreeMap::new(),
        };
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

pub type AtCut<'a> = &'a dyn Fn(u64) -> Result<(), Report>;

/// Stdin, unless it is a terminal.
pub(crate) fn stdin() -> Result<io::StdinLock<'static>, Report> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let fault = Fault::usage(
            "stdin",
            "is a terminal; this tool reads records from the tool before it",
        );
        return Err(fault
            .fix("begin the pipeline with: ipconf-check ip_config.txt | …")
            .report());
    }
    Ok(stdin.lock())
}

const WHOLE: &str = "run the previous tool again to its end, for all hosts (without --host) and \
    without a filter; only tools that reach hosts accept a part, with --partial";
const PIPE: &str = "a record is a JSON object with a \"type\"; only records may go into the pipe";

/// Checks each line as it arrives, so that a wrong one is refused before the end.
struct StreamRules {
    partial: bool,
    report: Report,
    /// What the first record of a failed stage says.
    failed: Option<String>,
    /// How many records are of a failed stage.
    failed_count: u64,
    sets: BTreeMap<String, Set>,
}

impl StreamRules {
    /// `Err` if later lines cannot make it valid, or at [`MAX_FAULTS`].
    fn follow(&mut self, head: &Head, text: &[u8]) -> Result<(), Report> {
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

    fn finish(mut self) -> Result<(), Report> {
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
struct NamedHosts {
    of: Option<u32>,
    /// The first record that names each host.
    named: BTreeMap<u32, String>,
}

impl NamedHosts {
    fn add(&mut self, head: &Head) {
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

    fn check(&self) -> Result<(), Report> {
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

/// The next value, on one line and without the white space around it; `None` at the end.
fn next_value(
    input: &mut impl BufRead,
    number: &mut u64,
    at_cut: AtCut<'_>,
) -> Result<Option<Vec<u8>>, Report> {
    let mut text = Vec::new();
    loop {
        let before_line = text.len();
        let room = (MAX_LINE + 1 - text.len()) as u64;
        let read = input.take(room).read_until(b'\n', &mut text);
        if read.map_err(|error| Fault::unreachable("stdin", error.to_string()).fix(PIPE))? == 0 {
            return if text.is_empty() {
                Ok(None)
            } else {
                at_cut(*number).map(|()| None)
            };
        }
        *number += 1;
        if text.len() > MAX_LINE {
            let fault = Fault::data(
                format!("stdin: line {number}"),
                format!("a record of more than {MAX_LINE} bytes"),
            );
            return Err(fault.fix(PIPE).report());
        }
        if before_line == 0 {
            let whole = text
                .strip_suffix(b"\n")
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line));
            if whole.is_some_and(|line| line.trim_ascii().is_empty()) {
                text.clear();
                continue;
            }
        }
        match serde_json::from_slice::<serde::de::IgnoredAny>(&text) {
            Ok(_) if before_line == 0 => {
                if text.ends_with(b"\n") {
                    text.pop();
                }
                return Ok(Some(text));
            }
            Ok(_) => return Ok(Some(compact(&text))),
            // Only an opening brace alone on its line begins a value of several lines, as jq writes
            // it; any other incomplete line was cut.
            Err(error)
                if error.is_eof() && (text.starts_with(b"{\n") || text.starts_with(b"{\r\n")) => {}
            Err(error) if error.is_eof() && !is_array(&text) => {
                return if text.ends_with(b"\n") {
                    Err(cut(*number))
                } else {
                    at_cut(*number).map(|()| None)
                };
            }
            Err(error) => return Err(not_a_record(*number, &text, &error)),
        }
    }
}

/// JSON without the white space between its tokens.
fn compact(text: &[u8]) -> Vec<u8> {
    let (mut out, mut quoted, mut escaped) = (Vec::with_capacity(text.len()), false, false);
    for &byte in text {
        if quoted {
            quoted = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            quoted = byte == b'"';
        }
        out.push(byte);
    }
    out
}

fn is_array(text: &[u8]) -> bool {
    text.trim_ascii_start().starts_with(b"[")
}

/// Its fix covers the known changes that other programs make to a stream.
fn not_a_record(number: u64, text: &[u8], error: &serde_json::Error) -> Report {
    let error = error.to_string();
    let (problem, fix) = if is_array(text) {
        (
            "an array, as jq -s makes it",
            "leave out -s, or put jq -c '.[]' in front of this tool",
        )
    } else if text.starts_with(b"\xef\xbb\xbf") {
        (
            "it begins with a byte order mark",
            r"save it without one, or put sed 's/^\xef\xbb\xbf//' in front of this tool",
        )
    } else if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") || text.contains(&0) {
        (
            "it is UTF-16, or not text at all",
            "save it as UTF-8, or put iconv -f utf-16 -t utf-8 in front of this tool",
        )
    } else if !text.trim_ascii_start().starts_with(b"{") {
        (
            "it is not a JSON object",
            "only records may go into the pipe; ipconf-check makes them from a list of hosts",
        )
    } else {
        (error.as_str(), PIPE)
    };
    Fault::data(
        format!("stdin: line {number}"),
        format!("not a record: {problem}"),
    )
    .fix(fix)
    .report()
}

fn cut(number: u64) -> Report {
    before(format!(
        "line {number} breaks off in the middle of a record"
    ))
    .report()
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

fn before(problem: impl std::fmt::Display) -> Fault {
    Fault::data("stdin", format!("the previous tool failed: {problem}"))
}

pub fn line<T: Record>(record: &T) -> Vec<u8> {
    let mut line = Vec::new();
    append(record, &mut line);
    line
}

pub fn append<T: Record>(record: &T, lines: &mut Vec<u8>) {
    lines.extend_from_slice(b"{\"type\":\"");
    lines.extend_from_slice(T::TYPE.as_bytes());
    lines.push(b'"');
    let fields = lines.len();
    if let Err(error) = record.append_json(lines) {
        lines.truncate(fields);
        lines.extend_from_slice(format!("{{\"unwritable\":\"{error}\"}}").as_bytes());
    }
    // the fields continue after the type
    match lines[fields + 1] {
        b'}' => drop(lines.remove(fields)),
        _ => lines[fields] = b',',
    }
    lines.push(b'\n');
}

/// Writes the input, then the planner's own lines. A closed pipe is no error.
pub fn print(
    stream: Option<&Stream>,
    own: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Result<(), Report> {
    let lines = stream.into_iter().flat_map(Stream::lines);
    print_lines(lines.map(|(line, _)| Ok(Cow::Borrowed(line))), own)
}

/// Like [`print`], if the planner's own lines join a set of the input, which then has `of` records.
pub fn print_more<T: Record>(
    stream: &Stream,
    of: u32,
    own: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Result<(), Report> {
    let lines = stream.lines.iter().map(|line| {
        let text = stream.text_of(line);
        if line.r#type == T::TYPE {
            Ok(Cow::Owned(with_fields(text, [("of", of.into())])?))
        } else {
            Ok(Cow::Borrowed(text))
        }
    });
    print_lines(lines, own)
}

fn print_lines<'a>(
    lines: impl Iterator<Item = io::Result<Cow<'a, [u8]>>>,
    own: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Result<(), Report> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let write = || {
        for line in lines {
            out.write_all(&line?)?;
            out.write_all(b"\n")?;
        }
        for line in own {
            out.write_all(line.as_ref())?;
        }
        out.flush()
    };
    match write() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let fault = Fault::unreachable("stdout", error.to_string());
            Err(fault.fix("check where stdout goes").report())
        }
        _ => Ok(()),
    }
}

/// Changes these fields of a record's line and nothing else.
pub fn with_fields<'a>(
    line: &[u8],
    changed: impl IntoIterator<Item = (&'a str, Value)>,
) -> Result<Vec<u8>, serde_json::Error> {
    let mut fields: IndexMap<String, Box<RawValue>> = serde_json::from_slice(line)?;
    for (name, value) in changed {
        fields.insert(name.to_owned(), to_raw_value(&value)?);
    }
    serde_json::to_vec(&fields)
}

/// The stdout of a tool that acts: every record is written as soon as it is true. After the reader
/// closes the pipe, the work continues, with one warning.
pub struct Out {
    tool: &'static str,
    open: bool,
    failed: bool,
}

impl Out {
    pub fn new(tool: &'static str) -> Out {
        Out {
            tool,
            open: true,
            failed: false,
        }
    }

    /// Whether records are lost, other than by a closed pipe.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    pub fn fault(&self) -> Option<Fault> {
        self.failed.then(|| {
            Fault::unreachable("stdout", "not all of it could be written")
                .fix("check where stdout goes, then run this again")
        })
    }

    pub fn write(&mut self, lines: &[u8]) {
        if !self.open {
            return;
        }
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(lines).and_then(|()| out.flush()) {
            self.open = false;
            // a reader that closed the pipe has read what it needed
            self.failed = error.kind() != io::ErrorKind::BrokenPipe;
            stderr::write_line(format_args!(
                "{}: stdout: {error}; the tool continues without it",
                self.tool
            ));
        }
    }

    pub fn record<T: Record>(&mut self, record: &T) {
        self.write(&line(record));
    }

    pub fn pass(&mut self, stream: &Stream) {
        self.pass_but(stream, "", &[]);
    }

    /// Leaves out the records of one type, which the tool writes again.
    pub fn pass_but(&mut self, stream: &Stream, left_out: &str, changed: &[Host]) {
        self.write(&stream.bytes_but(left_out, changed));
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
