//! Splits an ip_config into lines of words: white space separates words, and # begins a comment,
//! also within a word.

use record::error::{Fault, Report};

pub const MAX_LINES: usize = record::jsonl::MAX_HOSTS as usize;
/// Enough for that many lines with a comment each. A larger file (a graph by mistake, /dev/zero) is
/// not read to its end.
pub const MAX_BYTES: u64 = 64 << 20;
/// Enough for any comment.
pub const MAX_LINE: usize = 4096;
/// Further wrong lines are not informative.
pub const MAX_FAULTS: usize = 1000;

const PLAIN_TEXT: &str = "save the file as plain text, one host per line";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostLine {
    /// For messages: `FILE:LINE`.
    pub location: String,
    /// Counted from 1.
    pub number: u64,
    /// Address or name, perhaps after a user: `ann@gpu1`.
    pub address: String,
    /// Of its first graph server.
    pub port: Option<String>,
    pub name: Option<String>,
    /// The destination of logins, if it is not the address.
    pub login: Option<String>,
    /// A word after the port.
    pub surplus: Option<String>,
}

/// Accepts line ends of Windows and old Macs and a byte order mark; the result has those of Unix.
/// What is not UTF-8 becomes replacement characters.
pub fn decode(file: &str, text: &[u8]) -> Result<String, Report> {
    if text.len() as u64 > MAX_BYTES {
        let problem = format!("more than {MAX_BYTES} bytes: this is not a list of hosts");
        return Err(Fault::data(file, problem).fix(PLAIN_TEXT).report());
    }
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") || text.contains(&0) {
        let shown = record::quote::shown(file);
        let fault = Fault::data(file, "is UTF-16 or not text at all");
        let fix = format!("save it as plain text, or: iconv -f utf-16 -t utf-8 {shown}");
        return Err(fault.fix(fix).report());
    }
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    Ok(text.replace("\r\n", "\n").replace('\r', "\n"))
}

/// The lines that name hosts. White space is Python's, because DGL splits with `str.split`: blanks,
/// tabs, and the no-break space of a web page.
pub fn lines(file: &str, text: &str) -> Result<Vec<HostLine>, Report> {
    let fault = |location: &str, problem: String| Fault::data(location, problem).fix(PLAIN_TEXT);
    let mut lines = Vec::new();
    let mut report = Report::default();
    for (number, line) in (1..).zip(text.split('\n')) {
        let location = format!("{file}:{number}");
        if line.len() > MAX_LINE {
            report.push(fault(&location, format!("a line of {} bytes", line.len())));
        } else if line.contains('\u{fffd}') {
            report.push(fault(&location, "is not UTF-8 text".to_owned()));
        }
        let text = line.split('#').next().unwrap_or_default();
        let mut words = text.split_whitespace().map(str::to_owned);
        if let Some(address) = words.next() {
            lines.push(HostLine {
                location,
                number,
                address,
                port: words.next(),
                surplus: words.next(),
                ..HostLine::default()
            });
        }
        if lines.len() > MAX_LINES {
            report.push(fault(file, format!("more than {MAX_LINES} hosts")));
            break;
        }
        if report.0.len() >= MAX_FAULTS {
            break;
        }
    }
    report.check()?;
    Ok(lines)
}

/// No shell has another meaning for these.
pub fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-._".contains(c)
}

/// Whether a word can be a host's name, without characters that a shell or ssh would interpret.
pub fn is_name(word: &str) -> bool {
    word.chars().all(is_of_name)
        && !word.starts_with(['-', '.'])
        && word.chars().any(|c| c.is_ascii_alphabetic())
}
