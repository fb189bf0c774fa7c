//! Splits an ip_config, or the file of `--login`, into lines of words; white space separates words,
//! and # begins a comment.

use record::error::{Fault, Report};

/// As many lines as a stream can have hosts.
pub const MAX_LINES: usize = record::jsonl::MAX_HOSTS as usize;
/// The largest file: enough for that many lines with a comment each. A larger one (a graph by
/// mistake, /dev/zero) is not read to its end.
pub const MAX_BYTES: u64 = 64 << 20;
/// The longest line: enough for any comment. A file with a longer one is not an ip_config, and
/// nobody wants to see the line in a message.
const MAX_LINE: usize = 4096;
/// Further wrong lines tell nothing new.
pub const MAX_FAULTS: usize = 1000;

/// A line with words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the line, counted from 1.
    pub number: u64,
    /// The words, at least one.
    pub words: Vec<String>,
}

const A_LINE_A_HOST: &str = "save the file as plain text, a line a host";

/// The lines that have words. White space is what Python takes for it, because DGL splits with
/// `str.split`: blanks, tabs, and the no-break space of a web page. Line ends of Unix, Windows and
/// old Macs, a byte order mark, blank lines and comments are accepted.
pub fn lines(place: &str, text: &[u8]) -> Result<Vec<Line>, Report> {
    if text.len() as u64 > MAX_BYTES {
        return Err(Fault::data(
            place,
            format!("more than {MAX_BYTES} bytes: this is not a list of hosts"),
        )
        .fix(A_LINE_A_HOST)
        .report());
    }
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") || text.contains(&0) {
        let fault = Fault::data(place, "is UTF-16 or no text at all, which DGL cannot read");
        let file = record::quote::shown(place);
        return Err(fault
            .fix(format!(
                "save it as plain text, or: iconv -f utf-16 -t utf-8 {file}"
            ))
            .report());
    }
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    let one_kind_of_end = text.replace("\r\n", "\n").replace('\r', "\n");
    // the blank makes csv count an empty line
    let spaced: String = one_kind_of_end
        .split('\n')
        .map(|line| format!(" {}\n", line.replace(char::is_whitespace, " ")))
        .collect();
    let mut lines = Vec::new();
    let mut report = Report::default();
    let mut reader = csv::ReaderBuilder::new()
        .delimiter(b' ')
        .has_headers(false)
        .flexible(true)
        .quoting(false)
        .from_reader(spaced.as_bytes());
    for row in reader.records() {
        let row = row.map_err(|error| Fault::data(place, error.to_string()).fix(A_LINE_A_HOST))?;
        let number = row.position().map_or(0, csv::Position::line);
        match words(&row) {
            Ok(words) if words.is_empty() => {}
            Ok(words) => lines.push(Line { number, words }),
            Err(problem) => report.push(Fault::data(at(place, number), problem).fix(A_LINE_A_HOST)),
        }
        if lines.len() > MAX_LINES {
            report.push(
                Fault::data(place, format!("more than {MAX_LINES} hosts")).fix(A_LINE_A_HOST),
            );
        }
        if report.0.len() >= MAX_FAULTS || lines.len() > MAX_LINES {
            break;
        }
    }
    report.check()?;
    Ok(lines)
}

fn words(row: &csv::StringRecord) -> Result<Vec<String>, String> {
    let bytes = row.as_slice().len();
    if bytes > MAX_LINE {
        return Err(format!("a line of {bytes} bytes"));
    }
    if row.as_slice().contains('\u{fffd}') {
        return Err("is not UTF-8 text".to_owned());
    }
    Ok(row
        .iter()
        .filter(|word| !word.is_empty())
        .take_while(|word| !word.starts_with('#'))
        .map(str::to_owned)
        .collect())
}

/// The place of a line in messages: `FILE:LINE`.
pub fn at(place: &str, number: u64) -> String {
    format!("{place}:{number}")
}

/// Whether a word can be a host's name, with nothing that a shell or ssh would take for something
/// else.
pub fn is_name(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
        && !word.starts_with(['-', '.']);
    plain && word.chars().any(|c| c.is_ascii_alphabetic())
}
