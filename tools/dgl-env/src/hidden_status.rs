//! Shell text that ends well though its program has failed: the status of a shell is that of its
//! last command, and in a pipeline that of the last one too.
//!
//! Only what is certain is reported. Text with control structures, subshells or a status that it
//! examines itself says nothing.

use crate::command;
use crate::shell::{self, Joint, Simple};

/// Words that begin a part of a control structure, or hide what follows.
const STRUCTURES: [&str; 20] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "{", "}", "!", "trap", "eval", "coproc",
];
/// Commands whose own status is deliberate.
const DECIDES: [&str; 8] = ["exit", "return", "exec", "test", "[", "[[", "false", "kill"];
/// Commands that end well whatever happened before them.
const ALWAYS_ENDS_WELL: [&str; 5] = ["true", ":", "echo", "printf", "date"];

/// A warning about text that hides the status of its program, with what to write instead.
pub fn warning(text: &str) -> Option<String> {
    // these hold the statuses of a pipeline's commands
    if text.contains("PIPESTATUS") || text.contains("pipestatus") {
        return None;
    }
    let commands = shell::list(text)?;
    let is_certain = |(words, link): &(Simple, Joint)| {
        let is_structure = first_word(words).is_some_and(|word| STRUCTURES.contains(&word));
        *link != Joint::Parenthesis && !is_structure
    };
    if !commands.iter().all(is_certain) {
        return None;
    }
    let program = commands.iter().rposition(|(words, _)| is_program(words))?;
    let (before, rest) = commands.split_at(program);
    let options = ShellOptions::of(before)?;
    let (program, link) = rest.first()?;
    let program = shown(program);
    let behind = &rest[1..];
    let hides = match link {
        Joint::Pipe => !options.pipefail,
        Joint::Or => behind.first().is_some_and(|(words, _)| ends_well(words)),
        Joint::Background => true,
        Joint::Next => !options.errexit && !behind.is_empty(),
        Joint::And | Joint::End | Joint::Parenthesis => false,
    };
    let decides = |words: &Simple| first_word(words).is_some_and(|word| DECIDES.contains(&word));
    let waits = |words: &Simple| first_word(words) == Some("wait") && words.len() > 1;
    if !hides
        || behind
            .iter()
            .any(|(words, _)| decides(words) || waits(words))
    {
        return None;
    }
    let (last, _) = behind.last().unwrap_or(&rest[0]);
    // it may be given the status
    if *link == Joint::Next && !ends_well(last) && last.iter().any(|word| !word.literal) {
        return None;
    }
    let instead = match link {
        Joint::Pipe => {
            "let dgl-spawn --log-dir write the output instead of the pipe, or begin the text with \
             'set -o pipefail;'"
        }
        Joint::Or => "leave out what follows ||",
        Joint::Background => "leave out the & after it",
        _ => "write && instead of ; or begin the text with 'set -e;'",
    };
    let hider = match link {
        Joint::Background => "&".to_owned(),
        _ => shown(last),
    };
    Some(format!(
        "{hider:?} hides the exit status of {program:?}: if that fails, the job still ends with \
         status 0; {instead}"
    ))
}

/// Options of the shell that let a failure through.
#[derive(Debug, Default)]
struct ShellOptions {
    errexit: bool,
    pipefail: bool,
}

impl ShellOptions {
    /// Those that the commands before the program set; `None` if they are not certain.
    fn of(commands: &[(Simple, Joint)]) -> Option<ShellOptions> {
        let mut options = ShellOptions::default();
        for (words, _) in commands {
            match first_word(words) {
                Some("set") => {}
                // zsh's
                Some("setopt" | "emulate") => return None,
                _ => continue,
            }
            for word in &words[1..] {
                let text = word.text.as_str();
                let flags = text.strip_prefix('-').unwrap_or_default();
                options.errexit |= flags.contains('e') || text == "errexit";
                options.pipefail |= text == "pipefail";
                if !word.literal || text.starts_with('+') {
                    return None;
                }
            }
        }
        Some(options)
    }
}

/// Whether a simple command is the program that the text is for: Python, or a script.
fn is_program(words: &Simple) -> bool {
    let is_script = |word: &str| [".sh", ".py"].iter().any(|end| word.ends_with(end));
    match first_word(words) {
        Some("source" | ".") | None => false,
        Some(word) => is_script(word) || command::script_index(words).is_some(),
    }
}

fn ends_well(words: &Simple) -> bool {
    first_word(words).is_some_and(|word| ALWAYS_ENDS_WELL.contains(&word))
}

/// The first word that is no assignment.
fn first_word(words: &Simple) -> Option<&str> {
    let mut texts = words.iter().map(|word| word.text.as_str());
    texts.find(|text| !text.contains('='))
}

fn shown(words: &Simple) -> String {
    /// Enough to recognise a command.
    const WORDS: usize = 3;
    let texts: Vec<&str> = words
        .iter()
        .take(WORDS)
        .map(|word| word.text.as_str())
        .collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_hides_the_status_of_its_program() {
        let table = [
            (
                "python3 x.py 2>&1 | tee out.txt",
                "tee out.txt",
                "--log-dir",
            ),
            (
                "cd w && python3 x.py --lr 1 |& grep loss",
                "grep loss",
                "--log-dir",
            ),
            ("set -e; python3 x.py | tee a", "tee a", "--log-dir"),
            ("python3 x.py; date", "date", "&&"),
            ("python3 x.py\ndate\n", "date", "&&"),
            ("./train.sh; echo $?", "echo $?", "&&"),
            ("python3 x.py || true", "true", "||"),
            ("set -e\npython3 x.py || echo failed", "echo failed", "||"),
            ("python3 x.py &", "&", "leave out"),
            ("python3 x.py >log 2>&1 & wait", "&", "leave out"),
            (
                "CUDA_VISIBLE_DEVICES=0 python3 -m mod.train; sync",
                "sync",
                "&&",
            ),
            (
                "python3 prepare.py && python3 x.py; rm -rf /tmp/x",
                "rm -rf /tmp/x",
                "&&",
            ),
        ];
        for (text, hider, instead) in table {
            let warning = warning(text).unwrap_or_default();
            let hider = format!("{hider:?} hides the exit status of ");
            assert!(
                warning.contains(&hider) && warning.contains(instead),
                "{text}: {warning}"
            );
        }
    }

    #[test]
    fn text_that_does_not_hide_it_or_may_not() {
        let texts = [
            "python3 x.py",
            "python3 x.py >log 2>&1",
            "python3 x.py &>log",
            "python3 x.py && date",
            "date; python3 x.py",
            "cat list | python3 x.py",
            "set -o pipefail; python3 x.py | tee a",
            "set -euo pipefail\npython3 x.py | tee a",
            "set -e; python3 x.py; date",
            "python3 x.py | tee a; exit ${PIPESTATUS[0]}",
            "python3 x.py; s=$?; date; exit $s",
            "python3 x.py; s=$?; ./finish $s",
            "python3 x.py || exit 3",
            "python3 x.py || python3 x.py --again",
            "python3 x.py & wait $!",
            "if python3 x.py; then date; fi",
            "for i in 1 2; do python3 x.py; done; date",
            "(python3 x.py; date)",
            "trap date EXIT; python3 x.py; date",
            "source env.sh; date",
            "hostname; date",
            "python3 x.py 'unclosed; date",
            "setopt pipefail; python3 x.py | tee a",
        ];
        for text in texts {
            assert_eq!(warning(text), None, "{text}");
        }
    }
}
