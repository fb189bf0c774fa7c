//! The words of a shell whose command a signal ended: bash in a batch script or a terminal.

use super::report::{LauncherReport, end_in_words};
use evidence::marks::Writer;

pub fn read(line: &str) -> Option<LauncherReport> {
    let end = end_in_words(line).or_else(|| {
        // `job.sh: line 28:  8156 Killed                  python3 main.py`
        let (_, rest) = line.split_once(": line ")?.1.split_once(": ")?;
        let (pid, rest) = rest.trim_start().split_once(' ')?;
        pid.parse::<u32>().ok()?;
        let words = rest.trim_start().split("  ").next()?;
        end_in_words(words)
    })?;
    Some(LauncherReport::ended(Writer::default(), end))
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let end = match read(line) {
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
