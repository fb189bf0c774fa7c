//! Lines for people on stderr.

use crate::term::plain_lines;
use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes a line in one piece, because all stages of a pipeline write to stderr at once. If this
/// fails (closed terminal or pipe, full disk), the work continues; `eprintln!` would end the tool
/// and the job. Control sequences are escaped.
pub fn write_line(line: Arguments<'_>) {
    let line = plain_lines(&format!("{line}\n"));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// `eprintln!` by [`stderr::write_line`](crate::stderr::write_line).
#[macro_export]
macro_rules! tell {
    ($($line:tt)*) => {
        $crate::stderr::write_line(format_args!($($line)*))
    };
}
