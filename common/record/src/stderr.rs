//! Lines for people on stderr.

use crate::term::plain_lines;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line to stderr, in one piece, because all stages of a pipeline write there at once. If
/// this fails (the terminal or the reader of a pipe is closed, a disk is full), the work continues
/// without it; `eprintln!` would end the tool, and the job with it. Control sequences are escaped.
pub fn write_line(line: Arguments<'_>) {
    let line = plain_lines(&format!("{line}\n"));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Like `eprintln!`, by [`stderr::write_line`](crate::stderr::write_line).
#[macro_export]
macro_rules! tell {
    ($($line:tt)*) => {
        $crate::stderr::write_line(format_args!($($line)*))
    };
}
