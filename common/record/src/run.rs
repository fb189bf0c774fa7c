//! Reads the records of a run that may have failed, been cut short or still be running.

use crate::error::{Fault, Report};
use crate::jsonl::{self, Head, Stream};
use crate::stderr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

const RECORDS: &str = "name dgl-spawn's --log-dir, or the run.jsonl in it";

/// Reads stdin if `file` is absent or `-`. A directory, such as that of dgl-spawn's `--log-dir`,
/// stands for its run.jsonl. Sets may have holes. An incomplete last line is left out, with a
/// message by `tool`.
pub fn read(tool: &str, file: Option<&Path>, take: impl FnMut(&Head, &[u8])) -> Result<(), Report> {
    let file = in_directory(file);
    let file = file.as_deref();
    read_input(tool, &name_of(file), open(file, RECORDS)?, take)
}

/// Like [`read`], of a file that may be empty; returns whether it has records. `fix` is for one
/// that cannot be opened.
pub fn read_if_any(
    tool: &str,
    file: &Path,
    fix: &str,
    take: impl FnMut(&Head, &[u8]),
) -> Result<bool, Report> {
    let file = in_directory(Some(file));
    let file = file.as_deref();
    read_records(tool, &name_of(file), open(file, fix)?, take)
}

fn in_directory(file: Option<&Path>) -> Option<PathBuf> {
    file.map(|file| {
        if *file != *"-" && file.is_dir() {
            file.join("run.jsonl")
        } else {
            file.to_owned()
        }
    })
}

pub fn read_input(
    tool: &str,
    name: &str,
    input: impl Read,
    take: impl FnMut(&Head, &[u8]),
) -> Result<(), Report> {
    if read_records(tool, name, input, take)? {
        return Ok(());
    }
    Err(Fault::data(name, "it has no records").fix(RECORDS).report())
}

/// Returns whether there are any.
fn read_records(
    tool: &str,
    name: &str,
    input: impl Read,
    mut take: impl FnMut(&Head, &[u8]),
) -> Result<bool, Report> {
    let mut is_empty = true;
    let leave_out = |number: u64| {
        stderr::write_line(format_args!(
            "{tool}: {name}: line {number} breaks off; the records before it are read"
        ));
        Ok(())
    };
    let take = |head: &Head, text: &[u8]| {
        is_empty = false;
        take(head, text);
    };
    Stream::read_lines(input, true, &leave_out, take).map_err(|report| report.in_file(name))?;
    Ok(!is_empty)
}

pub fn name_of(file: Option<&Path>) -> String {
    file.filter(|file| *file != "-")
        .map_or("stdin".to_owned(), |file| file.display().to_string())
}

/// Stdin if `file` is absent or `-`. `fix` is for a file that cannot be opened.
pub fn open(file: Option<&Path>, fix: &str) -> Result<Box<dyn BufRead>, Report> {
    let Some(file) = file.filter(|file| *file != "-") else {
        return Ok(Box::new(jsonl::stdin(fix)?));
    };
    let opened = std::fs::File::open(file).map_err(|error| {
        Fault::unreachable(file.display().to_string(), error.to_string()).fix(fix)
    })?;
    Ok(Box::new(BufReader::new(opened)))
}
