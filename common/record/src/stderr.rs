//! Lines for people on stderr.

use crate::term::plain_lines;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line to stderr, in one piece, because all stages of a pipeline write there at once. If
/// nobody can read it any longer (the terminal or the reader of a pipe has gone, a disk is full),
/// the work goes on without it; `eprintln!` would end the tool, and the job with it. What a
/// terminal would obey is written out.
pub fn write_line(line: Arguments<'_>) {
    let line = plain_lines(&format!("{line}\n"));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Writes a line to stderr like `eprintln!`, but goes on where nobody can read it any longer; see
/// [`stderr::write_line`](crate::stderr::write_line).
#[macro_export]
macro_rules! tell {
    ($($line:tt)*) => {
        $crate::stderr::write_line(format_args!($($line)*))
    };
}
