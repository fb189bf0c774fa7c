//! The user's command, and what it runs.

use crate::launchers::{self, StartedLauncher};
use crate::placeholders::{PlaceholderValues, Template};
use crate::script::{is_interpreter, is_version, script_index};
use cli::typography;
use record::error::Fault;
use record::{is_variable_name, quote};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Executed without a shell.
    Words(Vec<OsString>),
    Shell(String),
}

impl UserCommand {
    /// Faults of words with dashes, quotation marks and spaces of typesetting, which a shell takes
    /// literally. In a command of words, only the first is checked: `cli` has checked all
    /// arguments.
    pub fn typography(&self, location: &str) -> Vec<Fault> {
        let text = match self {
            UserCommand::Shell(text) => text,
            UserCommand::Words(words) => {
                let program = words.first().map(|word| word.to_string_lossy());
                let fault = program.and_then(|word| typography::command_fault(location, &word));
                return Vec::from_iter(fault);
            }
        };
        // the lines of a here-document may be anything
        if text.contains("<<") {
            return Vec::new();
        }
        let unquoted = unquoted(text);
        let words_of = |line: &'_ str| -> Vec<String> {
            let words = line.split(|c: char| c.is_ascii_whitespace() || OPERATORS.contains(&c));
            let words = words.filter(|word| !word.is_empty());
            let words = words.take_while(|word| !word.starts_with('#'));
            words.map(str::to_owned).collect()
        };
        let words = unquoted.lines().flat_map(words_of).enumerate();
        let faults = words.filter_map(|(index, word)| match index {
            0 => typography::command_fault(location, &word),
            _ => typography::fault(location, &word),
        });
        faults.collect()
    }

    /// Adds `--local-rank=N`, or another `name`, after the script, as torch's launcher does, or at
    /// the end if no interpreter is among the words (`./train.py`).
    pub fn with_local_rank(&self, name: &str, local_rank: u32) -> Result<UserCommand, Fault> {
        let argument = format!("{name}={local_rank}");
        match (self, self.program()) {
            (UserCommand::Words(words), program) => {
                let mut words = words.clone();
                let end = program.map_or(words.len(), |(_, script)| script + 1);
                words.insert(end, argument.into());
                Ok(UserCommand::Words(words))
            }
            (UserCommand::Shell(_), Some((mut words, script))) => {
                words.insert(script + 1, argument);
                // a shell sees an assignment only if its name is not in quotes
                let shown = |word: &String| match word.split_once('=') {
                    Some((name, value)) if is_variable_name(name) => {
                        format!("{name}={}", quote::shown(value))
                    }
                    _ => quote::shown(word),
                };
                let words: Vec<String> = words.iter().map(shown).collect();
                Ok(UserCommand::Shell(words.join(" ")))
            }
            (UserCommand::Shell(_), None) => {
                let problem = format!(
                    "is not one Python program in plain words, after which {name} can be added"
                );
                let fix =
                    "give the command as words after --, with what comes before it in --setup";
                Err(Fault::usage("COMMAND", problem).fix(fix))
            }
        }
    }

    /// Fills in the placeholders for one process. Shell text has none: a shell has the environment,
    /// and braces of its own.
    pub fn filled(&self, values: PlaceholderValues<'_>) -> UserCommand {
        match self {
            UserCommand::Words(_) => {
                UserCommand::Words(self.templates().map(|word| word.fill(values)).collect())
            }
            UserCommand::Shell(text) => UserCommand::Shell(text.clone()),
        }
    }

    /// The words that may differ between processes.
    pub fn templates(&self) -> impl Iterator<Item = Template> {
        let words = match self {
            UserCommand::Words(words) => words.as_slice(),
            UserCommand::Shell(_) => &[],
        };
        words.iter().map(|word| Template::of_word(word.as_bytes()))
    }

    /// Replaces the interpreter if the command begins with one that PATH would look up.
    pub fn with_interpreter(mut self, python: &str) -> UserCommand {
        if self.python_version().is_some()
            && let UserCommand::Words(words) = &mut self
        {
            words[0] = python.into();
        }
        self
    }

    /// The version in an interpreter's name that PATH would look up: `3.11` of `python3.11`, empty
    /// for `python`.
    pub fn python_version(&self) -> Option<&str> {
        let UserCommand::Words(words) = self else {
            return None;
        };
        let version = words.first()?.to_str()?.strip_prefix("python")?;
        is_version(version).then_some(version)
    }

    /// The launcher that the command itself starts, if any. DGL would wait for ever, because it
    /// does not know of the additional processes.
    pub fn launcher(&self) -> Option<StartedLauncher> {
        let words = match self {
            UserCommand::Shell(text) => self.words().unwrap_or_else(|| {
                let first = text.split(OPERATORS).next().unwrap_or_default();
                first.split_whitespace().map(str::to_owned).collect()
            }),
            UserCommand::Words(_) => self.words()?,
        };
        launchers::find(&words)
    }

    pub fn interpreter(&self) -> Option<String> {
        let first = self.words()?.into_iter().next()?;
        (is_interpreter(&first) && is_utf8(&first)).then_some(first)
    }

    /// The file that the Python program runs, relative to the directory in which the process
    /// starts, if it can be recognized.
    pub fn script_file(&self) -> Option<String> {
        script_of(&self.words()?)
    }

    /// The words of a Python command, and the index of its script or module.
    pub fn program(&self) -> Option<(Vec<String>, usize)> {
        let words = self.words()?;
        let script = script_index(&words)?;
        Some((words, script))
    }

    /// Whether a setup certainly stays in the directory in which the process starts.
    pub fn stays(&self) -> bool {
        let moves = |word: &String| word == "cd" || word == "pushd";
        self.words().is_some_and(|words| !words.iter().any(moves))
    }

    /// Text has words only if its shell would do no more than split it.
    fn words(&self) -> Option<Vec<String>> {
        match self {
            UserCommand::Words(words) => {
                let words = words.iter().map(|word| word.to_string_lossy().into_owned());
                Some(words.collect())
            }
            UserCommand::Shell(text) => {
                // a backslash continues a line
                let text = text.trim().replace("\\\n", "");
                if text.contains(OPERATORS) || text.contains(EXPANSIONS) {
                    None
                } else {
                    shlex::split(&text)
                }
            }
        }
    }
}

/// These separate commands, or redirect their input and output.
const OPERATORS: [char; 8] = ['|', '&', ';', '<', '>', '(', ')', '\n'];
/// With these a shell replaces words, or takes others for its own.
const EXPANSIONS: [char; 10] = ['$', '`', '*', '?', '[', ']', '{', '}', '~', '#'];

/// Removes what is in quotes, which is meant literally.
fn unquoted(text: &str) -> String {
    let mut quote = None;
    let is_outside = |c: &char| match quote {
        Some(mark) => {
            if *c == mark {
                quote = None;
            }
            false
        }
        None if ['\'', '"'].contains(c) => {
            quote = Some(*c);
            false
        }
        None => true,
    };
    text.chars().filter(is_outside).collect()
}

/// Records have text; another path would be another file.
fn is_utf8(word: &str) -> bool {
    !word.contains(char::REPLACEMENT_CHARACTER)
}

/// The file that a command's Python runs as its script.
fn script_of(words: &[String]) -> Option<String> {
    let script = match script_index(words) {
        Some(script) if words[script - 1] == "-m" => return None,
        Some(script) => script,
        // behind options of Python
        None => {
            let python = words.iter().position(|word| is_interpreter(word))?;
            let mut options = words[python..].iter().take_while(|word| *word != "-c");
            python + options.position(|word| word.ends_with(".py"))?
        }
    };
    Some(words[script].clone()).filter(|word| is_utf8(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_before_the_interpreter_stay_assignments() {
        for (text, expected) in [
            (
                "EXTRA='-O2 -g' python3 t.py --lr 1",
                "EXTRA='-O2 -g' python3 t.py -r=1 --lr 1",
            ),
            (
                "A= B=\"it's\" python3 't 1.py' 'C=x y'",
                "A='' B='it'\\''s' python3 't 1.py' -r=1 C='x y'",
            ),
            (
                "env 'A=x y' python3 t.py '--b=x y'",
                "env A='x y' python3 t.py -r=1 '--b=x y'",
            ),
        ] {
            let command = UserCommand::Shell(text.to_owned()).with_local_rank("-r", 1);
            let Ok(UserCommand::Shell(told)) = command else {
                panic!("{text}")
            };
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn words_of_shell_text_have_no_typographic_characters_unless_quoted() {
        let table = [
            (
                "python3 t.py \u{2013}lr 0.1",
                &["\u{2013}lr: \u{2013} (U+2013)"][..],
            ),
            (
                "cd x && \u{201c}python3\u{201d} t.py \u{2018}a\u{2019}; ls \u{2014}l",
                &["\u{201c}python3", "\u{2018}a", "\u{2014}l"],
            ),
            ("python3\u{a0}t.py", &["python3\\u{a0}t.py contains"]),
            ("echo a\u{a0}--b=\"c\"", &["a\\u{a0}--b= contains"]),
            (
                "echo 0\u{2013}3 \"\u{201c}a\u{201d}\" '\u{2013}b' --c=\"\u{a0}-d\"",
                &[],
            ),
        ];
        for (text, expected) in table {
            let faults = UserCommand::Shell(text.to_owned()).typography("COMMAND");
            assert_eq!(faults.len(), expected.len(), "{text}: {faults:?}");
            for (fault, problem) in faults.iter().zip(expected) {
                assert!(fault.problem.starts_with(problem), "{text}: {fault}");
            }
        }
        let words = UserCommand::Words(vec!["python3\u{a0}t.py".into(), "a\u{a0}b".into()]);
        assert_eq!(words.typography("COMMAND").len(), 1);
    }
}
