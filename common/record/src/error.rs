//! Faults and reports. A fault knows its location and its fix; a report holds all faults that were
//! found at once.
//!
//! A problem may quote hosts, files and other programs. Printing makes that text harmless for a
//! terminal; records keep it unchanged.

use crate::exit::Exit;
use crate::term::{self, plain};
use crate::{similar, stderr};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::Path;

/// One thing that is wrong.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fault {
    /// Where: a file and line, a host, an option, a record.
    pub location: String,
    /// What is wrong there, in lower case, without a full stop.
    pub problem: String,
    /// Lines below the problem, if one line cannot name all parts of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// The fix, in words of the tools; some are commands, one on each line. It contains text from
    /// elsewhere only if [`crate::quote::may_be_pasted`] allows it.
    pub fix: Option<String>,
    /// The exit status that the fault leads to. A record has that of all faults together.
    #[serde(skip)]
    pub exit: Exit,
}

impl Fault {
    pub fn data(location: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            location: location.into(),
            problem: problem.into(),
            details: Vec::new(),
            fix: None,
            exit: Exit::BadData,
        }
    }

    pub fn unreachable(location: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::Unreachable,
            ..Fault::data(location, problem)
        }
    }

    pub fn usage(location: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::Usage,
            ..Fault::data(location, problem)
        }
    }

    pub fn item(location: impl Into<String>, problem: impl Into<String>) -> Fault {
        Fault {
            exit: Exit::ItemFailed,
            ..Fault::data(location, problem)
        }
    }

    pub fn fix(self, fix: impl Into<String>) -> Fault {
        Fault {
            fix: Some(fix.into()),
            ..self
        }
    }

    pub fn did_you_mean(mut self, missing: &Path) -> Fault {
        if let Some(meant) = similar::path(missing) {
            self.problem += &format!("; did you mean {}?", meant.display());
        }
        self
    }

    pub fn details(self, details: Vec<String>) -> Fault {
        Fault { details, ..self }
    }

    fn without_fix(&self) -> String {
        let details: String = self
            .details
            .iter()
            .map(|line| format!("\n    {}", plain(line)))
            .collect();
        format!(
            "{}: {}{details}",
            plain(&self.location),
            plain(&self.problem)
        )
    }

    pub fn report(self) -> Report {
        Report(vec![self])
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fix = self.fix.as_ref().map(|fix| fix_line(fix, None));
        write!(f, "{}{}", self.without_fix(), fix.unwrap_or_default())
    }
}

/// Faults beyond [`Report::SHOWN`] are only counted: the same line for 500 hosts helps no reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(pub Vec<Fault>);

impl Report {
    const SHOWN: usize = 40;

    pub fn check(self) -> Result<(), Report> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    pub fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub fn extend(&mut self, other: Report) {
        self.0.extend(other.0);
    }

    /// Takes the value, or keeps the faults.
    pub fn keep<T>(&mut self, result: Result<T, impl Into<Report>>) -> Option<T> {
        result.map_err(|faults| self.extend(faults.into())).ok()
    }

    /// All values, or the faults of all that failed.
    pub fn collect<T>(
        results: impl IntoIterator<Item = Result<T, impl Into<Report>>>,
    ) -> Result<Vec<T>, Report> {
        let mut report = Report::default();
        let values = results
            .into_iter()
            .filter_map(|result| report.keep(result))
            .collect();
        report.check().map(|()| values)
    }

    /// For a file that was read in place of stdin.
    pub fn in_file(mut self, name: &str) -> Report {
        for fault in &mut self.0 {
            fault.location = fault.location.replacen("stdin", name, 1);
        }
        self
    }

    pub fn exit(&self) -> Exit {
        self.0
            .iter()
            .fold(Exit::Done, |exit, fault| exit.worst(fault.exit))
    }

    /// A record has no more faults than are shown.
    pub fn recorded(&self) -> Vec<Fault> {
        self.0.iter().take(Report::SHOWN).cloned().collect()
    }

    /// In one piece, because all stages of a pipeline write to stderr at once.
    pub fn print(&self, tool: &str) {
        let lines = self.lines(tool);
        if !lines.is_empty() {
            stderr::write_line(format_args!("{}", lines.join("\n")));
        }
    }

    /// A fix that several faults share is printed once, after the last of them. On a terminal it is
    /// wrapped.
    pub fn lines(&self, tool: &str) -> Vec<String> {
        let mut by_fix: IndexMap<(Option<&str>, usize), Vec<&Fault>> = IndexMap::new();
        for (index, fault) in self.0.iter().enumerate() {
            // faults without a fix are not grouped
            let key = (
                fault.fix.as_deref(),
                if fault.fix.is_some() { 0 } else { index },
            );
            by_fix.entry(key).or_default().push(fault);
        }
        let columns = term::width(io::stderr());
        let mut lines = Vec::new();
        let mut names_option = false;
        for ((fix, _), faults) in by_fix {
            let shown = faults.iter().take(Report::SHOWN - lines.len());
            let before = lines.len();
            lines.extend(shown.map(|fault| format!("{tool}: {}", fault.without_fix())));
            if let (Some(fix), Some(last)) = (fix, lines[before..].last_mut()) {
                names_option |= fix.split(' ').any(|word| word.starts_with("--"));
                *last += &fix_line(fix, columns);
            }
        }
        let left = self.0.len() - lines.len();
        if left > 0 {
            lines.push(format!("{tool}: and {left} more like these"));
        }
        let wrapper = std::env::var(WRAPPER).ok();
        if let Some(wrapper) = wrapper.filter(|wrapper| names_option && wrapper != tool) {
            lines.push(format!(
                "{tool}: {wrapper} --print … shows the pipeline into which such options go"
            ));
        }
        lines
    }
}

/// Names the script that made the pipeline. Its options differ from the tools', so it may not know
/// an option in a fix.
pub const WRAPPER: &str = "DGL_TOOLS_WRAPPER";

/// Some fixes are commands, one on each line.
fn fix_line(fix: &str, columns: Option<usize>) -> String {
    let mut lines = fix.split('\n').map(plain);
    let first = format!("  fix: {}", lines.next().unwrap_or_default());
    let first = match columns {
        Some(columns) => term::wrapped(&first, columns, "       "),
        None => first,
    };
    std::iter::once(first)
        .chain(lines.map(Cow::into_owned))
        .map(|line| format!("\n{line}"))
        .collect()
}

impl From<Fault> for Report {
    fn from(fault: Fault) -> Report {
        fault.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_share_stands_once() {
        let fault = |host: u32, problem: &str| Fault::data(format!("host {host}"), problem);
        let port = |host| fault(host, "port 5 is taken").fix("take another");
        let report = Report(vec![
            port(0),
            fault(0, "no such file: a").fix("copy it"),
            fault(1, "is odd"),
            port(1),
            fault(2, "no such file: b").fix("copy it"),
            fault(2, "is even"),
        ]);
        let lines = [
            "t: host 0: port 5 is taken",
            "t: host 1: port 5 is taken\n  fix: take another",
            "t: host 0: no such file: a",
            "t: host 2: no such file: b\n  fix: copy it",
            "t: host 1: is odd",
            "t: host 2: is even",
        ];
        assert_eq!(report.lines("t"), lines);
        let many = Report((0..60).map(|host| fault(host, &host.to_string())).collect());
        assert_eq!(many.lines("t").last().unwrap(), "t: and 20 more like these");
        let everywhere = Report((0..60).map(port).collect()).lines("t");
        assert_eq!(
            (&*everywhere[39], &*everywhere[40]),
            (
                "t: host 39: port 5 is taken\n  fix: take another",
                "t: and 20 more like these"
            )
        );
    }
}
