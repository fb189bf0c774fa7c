//! Reads the records of a run that may have failed, been cut short or still be running.

use crate::error::{Fault, Report};
use crate::jsonl::{self, Head, Stream};
use crate::stderr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Reads stdin if `file` is absent or `-`. A directory, such as that of dgl-spawn's `--log-dir`,
/// stands for its run.jsonl. Sets may have holes. An incomplete last line is left out, with a
/// message by `tool`.
pub fn read(tool: &str, file: Option<&Path>, take: impl FnMut(&Head, &[u8])) -> Result<(), Report> {
    let in_directory = file
        .filter(|file| *file != "-" && file.is_dir())
        .map(|directory| directory.join("run.jsonl"));
    let file = in_directory.as_deref().or(file);
    read_input(tool, &name_of(file), open(file)?, take)
}

pub fn read_input(
    tool: &str,
    name: &str,
    input: impl Read,
    take: impl FnMut(&Head, &[u8]),
) -> Result<(), Report> {
    let leave_out = |number: u64| {
        stderr::write_line(format_args!(
            "{tool}: {name}: line {number} breaks off; the records before it are read"
        ));
        Ok(())
    };
    Stream::read_lines(input, true, &leave_out, take).map_err(|report| report.in_file(name))
}

pub fn name_of(file: Option<&Path>) -> String {
    file.filter(|file| *file != "-")
        .map_or("stdin".to_owned(), |file| file.display().to_string())
}

/// Stdin if `file` is absent or `-`.
pub fn open(file: Option<&Path>) -> Result<Box<dyn BufRead>, Report> {
    let Some(file) = file.filter(|file| *file != "-") else {
        return Ok(Box::new(jsonl::stdin()?));
    };
    let opened = std::fs::File::open(file).map_err(|error| {
        Fault::unreachable(file.display().to_string(), error.to_string())
            .fix("name the file that has dgl-spawn's records")
    })?;
    Ok(Box::new(BufReader::new(opened)))
}
