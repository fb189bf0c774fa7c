//! Records to stdout.

use super::Stream;
use crate::error::{Fault, Report};
use crate::{Host, Record, stderr};
use indexmap::IndexMap;
use serde_json::value::{RawValue, Value, to_raw_value};
use std::borrow::Cow;
use std::io::{self, Write};

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

/// The stdout of a tool that acts: every record is written as soon as it is true. Without a reader
/// the work continues.
pub struct Out {
    tool: &'static str,
    open: bool,
    failed: bool,
    is_only_copy: bool,
}

impl Out {
    pub fn new(tool: &'static str) -> Out {
        Out {
            tool,
            open: true,
            failed: false,
            is_only_copy: false,
        }
    }

    /// If nothing else keeps what is written, a reader that exits causes a warning.
    pub fn only_copy(self, is_only_copy: bool) -> Out {
        Out {
            is_only_copy,
            ..self
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
            // a reader that exited has read what it needed, or has reported why not
            let has_reader_exited = error.kind() == io::ErrorKind::BrokenPipe;
            self.failed = !has_reader_exited;
            if self.failed || self.is_only_copy {
                stderr::write_line(format_args!(
                    "{}: stdout: {error}; the tool continues without it",
                    self.tool
                ));
            }
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
