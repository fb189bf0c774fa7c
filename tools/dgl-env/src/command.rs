//! The user's command, and what it runs.

use crate::launchers::{self, StartedLauncher};
use crate::placeholders::{PlaceholderValues, Template};
use crate::shell::{self, Word};
use cli::typography;
use record::error::Fault;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// The user's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Words that are executed without a shell.
    Words(Vec<OsString>),
    /// Text for the user's shell.
    Shell(String),
}

impl UserCommand {
    /// Faults of words with dashes, quotation marks and spaces of typesetting, which a shell takes
    /// literally. Of a command in words only the first is checked: `cli` has checked all arguments.
    pub fn typography(&self, location: &str) -> Vec<Fault> {
        let text = match self {
            UserCommand::Shell(text) => text,
            UserCommand::Words(words) => {
                let program = words.first().map(|word| word.to_string_lossy());
                let fault = program.and_then(|word| typography::command_fault(location, &word));
                return Vec::from_iter(fault);
            }
        };
        let fault = |(index, word): (usize, Word)| {
            // what is quoted is meant
            let unquoted = text[word.start..word.end].split(['\'', '"']).next()?;
            match index {
                0 => typography::command_fault(location, unquoted),
                _ => typography::fault(location, unquoted),
            }
        };
        let commands = self.simple_commands().into_iter();
        let words = commands.flat_map(|command| command.into_iter().enumerate());
        words.filter_map(fault).collect()
    }

    /// Adds `--local-rank=N`, or another `name`, after the script, where torch's launcher puts it;
    /// at the end if no interpreter is among the words (`./train.py`).
    pub fn with_local_rank(&self, name: &str, local_rank: u32) -> Result<UserCommand, Fault> {
        let end = self.program().map(|(words, script)| words[script].end);
        let argument = format!("{name}={local_rank}");
        match (self, end) {
            (UserCommand::Words(words), end) => {
                let mut words = words.clone();
                words.insert(end.unwrap_or(words.len()), argument.into());
                Ok(UserCommand::Words(words))
            }
            (UserCommand::Shell(text), Some(end)) => {
                let mut text = text.clone();
                text.insert_str(end, &format!(" {argument}"));
                Ok(UserCommand::Shell(text))
            }
            (UserCommand::Shell(_), None) => {
                let problem = format!(
                    "is not a single Python script after which {name} can be \
                                       added"
                );
                let fix =
                    "give the command as words after --, with what comes before it in --setup";
                Err(Fault::usage("COMMAND", problem).fix(fix))
            }
        }
    }

    /// Fills in the placeholders for one process. Shell text has none, because a shell has the
    /// environment, and braces of its own.
    pub fn filled(&self, values: PlaceholderValues<'_>) -> UserCommand {
        match self {
            UserCommand::Words(_) => {
                UserCommand::Words(self.templates().map(|word| word.fill(values)).collect())
            }
            UserCommand::Shell(text) => UserCommand::Shell(text.clone()),
        }
    }

    /// The words of the command that may differ between processes.
    pub fn templates(&self) -> impl Iterator<Item = Template> {
        let words = match self {
            UserCommand::Words(words) => words.as_slice(),
            UserCommand::Shell(_) => &[],
        };
        words.iter().map(|word| Template::of_word(word.as_bytes()))
    }

    /// Replaces the interpreter by this one, if the command begins with one that PATH would look
    /// up.
    pub fn with_interpreter(mut self, python: &str) -> UserCommand {
        if self.python_version().is_some()
            && let UserCommand::Words(words) = &mut self
        {
            words[0] = python.into();
        }
        self
    }

    /// The version in the interpreter's name, if PATH would look it up: `3.11` of `python3.11`,
    /// empty for `python`.
    pub fn python_version(&self) -> Option<&str> {
        let UserCommand::Words(words) = self else {
            return None;
        };
        let version = words.first()?.to_str()?.strip_prefix("python")?;
        is_version(version).then_some(version)
    }

    /// The launcher that the command itself starts, if it does. There would be more processes than
    /// DGL knows of, and it would wait for ever.
    pub fn launcher(&self) -> Option<StartedLauncher> {
        let commands = self.simple_commands();
        let mut commands = commands.iter();
        commands.find_map(|words| launchers::find(words, script_index(words)))
    }

    /// The interpreter with which the command begins, if it does.
    pub fn interpreter(&self) -> Option<String> {
        let first = self.simple_commands().into_iter().flatten().next()?;
        (first.literal && is_interpreter(&first.text)).then_some(first.text)
    }

    /// The file that the command's only Python program runs, relative to the directory in which the
    /// process starts, if that can be recognised.
    pub fn script_file(&self) -> Option<String> {
        let commands = self.simple_commands();
        let mut files = commands.iter().filter_map(|words| script_of(words));
        let (first, others) = (files.next()?, files.count());
        (others == 0 && self.stays()).then_some(first)
    }

    /// The script or module of the command's Python program, if it can be recognised.
    pub fn script(&self) -> Option<String> {
        let (mut words, script) = self.program()?;
        Some(words.swap_remove(script).text)
    }

    /// The arguments of the script; `None` for one that only the host's shell can know.
    pub fn script_args(&self) -> Vec<Option<String>> {
        let (words, first) = match (self.program(), self) {
            (Some((words, script)), _) => (words, script + 1),
            (None, UserCommand::Words(words)) => (plain(words), 1),
            (None, UserCommand::Shell(_)) => return Vec::new(),
        };
        let known = |word: Word| word.literal.then_some(word.text);
        words.into_iter().skip(first).map(known).collect()
    }

    /// The text that a shell runs: this one, or that of a shell among the words
    /// (`bash -c 'python3 train.py'`).
    pub fn shell_text(&self) -> Option<&str> {
        match self {
            UserCommand::Shell(text) => Some(text),
            UserCommand::Words(words) => {
                let mut texts = words.iter().map(|word| word.to_str().unwrap_or_default());
                let is_shell = |word: &str| SHELLS.contains(&word.rsplit('/').next().unwrap_or(""));
                texts.find(|word| is_shell(word))?;
                texts
                    .next()
                    .filter(|option| ["-c", "-lc"].contains(option))?;
                texts.next()
            }
        }
    }

    /// Whether the script runs in the directory in which the process starts, as far as that can be
    /// recognised.
    pub fn stays(&self) -> bool {
        let UserCommand::Shell(text) = self else {
            return true;
        };
        let moves = |word: &Word| word.text == "cd" || word.text == "pushd";
        shell::commands(text).is_some_and(|commands| !commands.iter().flatten().any(moves))
    }

    fn simple_commands(&self) -> Vec<Vec<Word>> {
        match self {
            UserCommand::Words(words) => vec![plain(words)],
            UserCommand::Shell(text) => shell::commands(text).unwrap_or_default(),
        }
    }

    /// The simple command with the only Python program of the command, and the index of the script.
    fn program(&self) -> Option<(Vec<Word>, usize)> {
        let commands = self.simple_commands().into_iter();
        let mut programs = commands.filter_map(|words| {
            let script = script_index(&words)?;
            Some((words, script))
        });
        programs.next().filter(|_| programs.next().is_none())
    }
}

/// Shells whose words are read as [`shell::list`] reads them.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ksh", "mksh", "zsh"];

/// Finds `python3 SCRIPT` in a simple command, after any wrapper (`numactl -N0`, `env A=B`, `conda
/// run -n e`). Returns the index of the script, or of the module after `-m`.
pub fn script_index(words: &[Word]) -> Option<usize> {
    let text = |index: usize| words.get(index).map(|word: &Word| word.text.as_str());
    let script_of = |python: usize| {
        let options = words[python + 1..].iter();
        let behind = python + options.take_while(|word| word.text == "-u").count();
        match (text(behind + 1)?, text(behind + 2)) {
            ("-m", Some(module)) if !module.starts_with('-') => Some(behind + 2),
            (option, _) if option.starts_with('-') => None,
            // the environment of `conda run -n python3 python3 train.py`
            (script, _) if is_interpreter(script) => None,
            _ => Some(behind + 1),
        }
    };
    let mut interpreters = (0..words.len()).filter(|index| is_interpreter(&words[*index].text));
    interpreters.find_map(script_of)
}

fn is_version(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Whether a word is a Python interpreter: `python`, `python3`, `/opt/env/bin/python3.11`,
/// `python3.13t`, `python3-dbg`; not an option or an assignment.
fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let version = name
        .strip_prefix("python")
        .map(|rest| rest.trim_end_matches("-dbg").trim_end_matches(['d', 't']));
    !word.starts_with('-') && !word.contains('=') && version.is_some_and(is_version)
}

/// The file that the Python of a simple command runs as its script.
fn script_of(words: &[Word]) -> Option<String> {
    let script = match script_index(words) {
        Some(script) if words[script - 1].text == "-m" => return None,
        Some(script) => script,
        // behind options of Python
        None => {
            let python = words.iter().position(|word| is_interpreter(&word.text))?;
            let mut options = words[python..].iter().take_while(|word| word.text != "-c");
            python + options.position(|word| word.text.ends_with(".py"))?
        }
    };
    words[script].literal.then(|| words[script].text.clone())
}

fn plain(words: &[OsString]) -> Vec<Word> {
    let word = |(word, end): (&OsString, usize)| Word {
        text: word.to_string_lossy().into_owned(),
        literal: word.to_str().is_some(),
        start: end - 1,
        end,
    };
    words.iter().zip(1..).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn words(line: &str) -> UserCommand {
        UserCommand::Words(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn what_the_script_is_given() {
        let seen = |command: UserCommand| {
            command
                .script_args()
                .into_iter()
                .map(|arg| arg.unwrap_or("?".into()))
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(seen(words("numactl -N0 python3 t.py --a b")), "--a b");
        assert_eq!(seen(words("./t.py --a b")), "--a b");
        assert_eq!(
            seen(UserCommand::Shell(
                "x && python3 -u t.py --a 'b c' --d $E >log; y --f".into()
            )),
            "--a b c --d ?"
        );
        assert_eq!(seen(UserCommand::Shell("./t.py --a".into())), "");
    }
}
