//! The words of a shell whose command a signal ended: bash in a batch script or a terminal.

use super::report::{Form, LauncherReport, end_in_words};
use evidence::marks::Writer;

pub const FORMS: [Form; 2] = [
    (r"^.{6,45}$", |_, words| {
        Some(LauncherReport::ended(
            Writer::default(),
            end_in_words(&words[0])?,
        ))
    }),
    // `job.sh: line 28:  8156 Killed                  python3 main.py`
    (r": line [0-9]+: *[0-9]+ +(.+?)(?:  .*)?$", |_, words| {
        Some(LauncherReport::ended(
            Writer::default(),
            end_in_words(&words[1])?,
        ))
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::report::read_all;

    #[test]
    fn ends_of_commands() {
        for (line, words) in [
            ("Killed", "SIGKILL"),
            ("Segmentation fault (core dumped)", "SIGSEGV"),
            (
                "slurm_script: line 28:  8156 Killed                  python3 main.py",
                "SIGKILL",
            ),
            (
                "job.sh: line 3:    77 Bus error               (core dumped) python3 x.py",
                "SIGBUS",
            ),
            ("Killed all 5 monsters", ""),
            ("train.py: line 28: Killed", ""),
            ("bash: line 1: foo: command not found", ""),
        ] {
            let end = match read_all(&[&FORMS], line).pop() {
                Some(LauncherReport::Process(end)) => end.end.to_string(),
                _ => String::new(),
            };
            assert!(
                end.contains(words) && end.is_empty() == words.is_empty(),
                "{line}: {end}"
            );
        }
    }
}
