//! The values of an input, each as one line.

use super::MAX_LINE;
use super::rules::before;
use crate::error::{Fault, Report};
use std::io::{self, BufRead, IsTerminal, Read};

pub type AtCut<'a> = &'a dyn Fn(u64) -> Result<(), Report>;

pub(crate) const PIPELINE: &str = "begin the pipeline with: ipconf-check ip_config.txt | …";

/// Stdin, unless it is a terminal; `fix` is what to do then.
pub(crate) fn stdin(fix: &str) -> Result<io::StdinLock<'static>, Report> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(
            Fault::usage("stdin", "is a terminal; nothing is piped into this tool")
                .fix(fix)
                .report(),
        );
    }
    Ok(stdin.lock())
}

const PIPE: &str = "a record is a JSON object with a \"type\"; only records may go into the pipe";

/// The next value, on one line and without the white space around it; `None` at the end.
pub fn next_value(
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
pub fn not_a_record(number: u64, text: &[u8], error: &serde_json::Error) -> Report {
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

pub fn cut(number: u64) -> Report {
    before(format!(
        "line {number} breaks off in the middle of a record"
    ))
    .report()
}
