//! The words of a shell whose command a signal ended: bash in a batch script or a terminal.

use super::report::{Form, LauncherReport, end_in_words};
use evidence::marks::Writer;
use record::exit::SignalNumber;

/// Programs that a script starts beside the job and kills at its end.
const BESIDE: [&str; 12] = [
    "nvidia-smi",
    "dcgmi",
    "gpustat",
    "nvitop",
    "vmstat",
    "pidstat",
    "iostat",
    "sar",
    "top",
    "sleep",
    "tail",
    "while",
];

pub const FORMS: [Form; 2] = [
    (r"^.{6,45}$", |_, words| ended(&words[0], None)),
    // `job.sh: line 28:  8156 Killed                  python3 main.py`
    (r": line [0-9]+: *[0-9]+ +(.+?)(?:  (.*))?$", |_, words| {
        ended(&words[1], words.get(2).map(|command| command.as_str()))
    }),
];

fn ended(how: &str, command: Option<&str>) -> Option<LauncherReport> {
    let end = end_in_words(how)?;
    // nobody sends another signal to them
    let is_sent = matches!(end.signal, Some(SignalNumber::KILL | SignalNumber::TERM));
    // `( while true; do` is a loop, `(core dumped) python3 t.py` is not
    let program = command.map(|command| command.trim_start_matches(['(', ' ']));
    let program = program.and_then(|command| command.split([' ', ';']).next());
    let name = program.and_then(|program| program.rsplit('/').next());
    let is_beside = is_sent && name.is_some_and(|name| BESIDE.contains(&name));
    Some(if is_beside {
        LauncherReport::Closing
    } else {
        LauncherReport::ended(Writer::default(), end)
    })
}

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
            ("Terminated", "SIGTERM"),
            ("job.sh: line 3: 77 Terminated   python3 x.py", "SIGTERM"),
            ("job.sh: line 3: 77 Killed   nvidia-smi dmon > gpu.log", ""),
            ("job.sh: line 3: 77 Killed   ( while true; do", ""),
            ("job.sh: line 3: 77 Terminated   /usr/bin/tail -f x.log", ""),
            (
                "job.sh: line 3: 77 Killed   ( cd x && python3 t.py )",
                "SIGKILL",
            ),
            (
                "job.sh: line 3: 77 Killed   python3 t.py --early_stop 10",
                "SIGKILL",
            ),
            ("job.sh: line 3: 77 Bus error   tail x.log", "SIGBUS"),
            ("job.sh: line 3: 77 Killed   $LAUNCHER train", "SIGKILL"),
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
