//! The user's command, and the same under torch's launcher.

use crate::launchers::{self, StartedLauncher};
use crate::placeholders::{PlaceholderValues, Template};
use crate::shell::{self, Word};
use record::error::Fault;
use record::quote;
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

/// A Python program in a simple command.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    command: Vec<Word>,
    /// The index of the word after which torch's launcher is inserted.
    behind: usize,
    /// The index of the script, or of the module after `-m`.
    script: usize,
}

impl UserCommand {
    /// Inserts torch's launcher into the command, where it has `python3 SCRIPT` or `python3 -m
    /// MODULE`: after the interpreter, as DGL's launcher does, and after its `-u`, which DGL's
    /// launcher passes to torch.
    pub fn under_torch(&self, torch: &[OsString]) -> Result<UserCommand, Fault> {
        let program = self.program().map_err(|problem| {
            Fault::usage(
                "COMMAND",
                format!("{problem}, so torch's launcher cannot be put into it"),
            )
            .fix(
                "let it run one python3 SCRIPT by name or path, with what comes before in \
                 --setup; give shell text as the command itself, in one word; or take --launcher \
                 direct",
            )
        })?;
        Ok(self.with_words_at(program.command[program.behind].end, torch))
    }

    /// Adds `--local-rank=N`, or another `name`, after the script, where torch's launcher puts it;
    /// at the end if no interpreter is among the words (`./train.py`).
    pub fn with_local_rank(&self, name: &str, local_rank: u32) -> Result<UserCommand, Fault> {
        let end = match (self.program(), self) {
            (Ok(program), _) => program.command[program.script].end,
            (Err(_), UserCommand::Words(words)) => words.len(),
            (Err(problem), UserCommand::Shell(_)) => {
                let fault = Fault::usage(
                    "COMMAND",
                    format!("{problem}, so {name} cannot be put behind the script"),
                );
                return Err(fault.fix(
                    "give the command as words behind --, with what comes before it in --setup",
                ));
            }
        };
        Ok(self.with_words_at(end, &[format!("{name}={local_rank}").into()]))
    }

    /// Inserts words behind the one that has this `end`.
    fn with_words_at(&self, end: usize, more: &[OsString]) -> UserCommand {
        match self {
            UserCommand::Words(words) => {
                let mut words = words.clone();
                words.splice(end..end, more.iter().cloned());
                UserCommand::Words(words)
            }
            UserCommand::Shell(text) => {
                let mut text = text.clone();
                for word in more.iter().rev() {
                    text.insert_str(end, &format!(" {}", quote::shown(word.as_bytes())));
                }
                UserCommand::Shell(text)
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
        self.simple_commands().into_iter().find_map(|words| {
            let program = program(words.clone()).ok();
            launchers::find(&words, program.map(|program| program.script))
        })
    }

    /// The interpreter with which the command begins, if it does.
    pub fn interpreter(&self) -> Option<String> {
        let first = self.simple_commands().into_iter().flatten().next()?;
        (first.literal && is_interpreter(&first.text)).then_some(first.text)
    }

    /// The file that the command's only Python program runs, relative to the folder in which the
    /// process starts, if that can be recognised.
    pub fn script_file(&self) -> Option<String> {
        let commands = self.simple_commands();
        let mut files = commands.iter().filter_map(|words| script_of(words));
        let (first, others) = (files.next()?, files.count());
        (others == 0 && self.stays()).then_some(first)
    }

    /// The script or module of the command's Python program, if it can be recognised.
    pub fn script(&self) -> Option<String> {
        let mut program = self.program().ok()?;
        Some(program.command.swap_remove(program.script).text)
    }

    /// The arguments of the script; `None` for one that only the host's shell can know.
    pub fn script_args(&self) -> Vec<Option<String>> {
        let (command, first) = match (self.program(), self) {
            (Ok(program), _) => (program.command, program.script + 1),
            (Err(_), UserCommand::Words(words)) => (plain(words), 1),
            (Err(_), UserCommand::Shell(_)) => return Vec::new(),
        };
        let known = |word: Word| word.literal.then_some(word.text);
        command.into_iter().skip(first).map(known).collect()
    }

    /// Whether the script runs in the folder in which the process starts, as far as that can be
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

    /// The only Python program of the command.
    fn program(&self) -> Result<Program, String> {
        if let UserCommand::Shell(text) = self
            && shell::commands(text).is_none()
        {
            return Err("has a here-document, or a quote that is not closed".to_owned());
        }
        let (found, problems): (Vec<_>, Vec<_>) = self
            .simple_commands()
            .into_iter()
            .map(program)
            .partition(Result::is_ok);
        let several = found.len();
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some(program), None) => Ok(program),
            (Some(_), Some(_)) => Err(format!(
                "runs {several} Python programs, of which only one can be the training"
            )),
            // a problem with a Python program tells more than that there is none
            (None, _) => Err(problems
                .into_iter()
                .rev()
                .filter_map(Result::err)
                .find(|problem| problem != NO_PYTHON)
                .unwrap_or_else(|| NO_PYTHON.to_owned())),
        }
    }
}

const NO_PYTHON: &str = "has no Python interpreter as a word of its own";

/// Finds `python3 SCRIPT` in a simple command, after any wrapper (`numactl -N0`, `env A=B`, `conda
/// run -n e`).
fn program(command: Vec<Word>) -> Result<Program, String> {
    let mut problem = None;
    let text = |index: usize| command.get(index).map(|word: &Word| word.text.as_str());
    for python in (0..command.len()).filter(|index| is_interpreter(&command[*index].text)) {
        let options = command[python + 1..].iter();
        let behind = python + options.take_while(|word| word.text == "-u").count();
        let script = match (text(behind + 1), text(behind + 2)) {
            (Some("-m"), Some(module)) if !module.starts_with('-') => behind + 2,
            (Some(option @ ("-c" | "-" | "-m")), _) => {
                problem.get_or_insert(format!(
                    "gives python {option}, and torch's launcher starts scripts and modules only"
                ));
                continue;
            }
            (Some(option), _) if option.starts_with('-') => {
                problem.get_or_insert(format!(
                    "gives python {option}, which torch's launcher does not hand on to the trainers"
                ));
                continue;
            }
            // a folder, or the environment of `conda run -n python3 python3 train.py`
            (None, _) if python == 0 => {
                problem.get_or_insert("calls python without a script".to_owned());
                continue;
            }
            (None, _) => continue,
            (Some(script), _) if is_interpreter(script) => continue,
            (Some(_), _) => behind + 1,
        };
        return Ok(Program {
            command,
            behind,
            script,
        });
    }
    Err(problem.unwrap_or_else(|| NO_PYTHON.to_owned()))
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
    let script = match program(words.to_vec()) {
        Ok(program) if words[program.script - 1].text == "-m" => return None,
        Ok(program) => program.script,
        // behind options of Python that torch's launcher does not know
        Err(_) => {
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
        end,
    };
    words.iter().zip(1..).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> UserCommand {
        UserCommand::Words(line.split(' ').map(OsString::from).collect())
    }

    fn shown(command: Result<UserCommand, Fault>) -> String {
        match command {
            Ok(UserCommand::Words(words)) => words
                .iter()
                .map(|word| word.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" "),
            Ok(UserCommand::Shell(text)) => text,
            Err(fault) => fault.to_string(),
        }
    }

    /// TORCH stands where torch's words go, RANK where `--local_rank` goes.
    const WORDS: &[&str] = &[
        "python3 TORCH t.py RANK -x",
        "python TORCH t.py RANK",
        "/opt/python-3/bin/python3.11 TORCH t.py RANK",
        "python3.13t TORCH t.py RANK",
        "python3.8-dbg TORCH t.py RANK",
        "python3 -u TORCH t.py RANK -u",
        "python3 TORCH -m pkg.train RANK --lr 1",
        "python3 TORCH /home/pythonista/x.py RANK",
        "numactl -N0 python3 TORCH t.py RANK",
        "numactl -N 0 -m 0 python3 TORCH t.py RANK",
        "env A=B PY=/usr/bin/python3 python3 TORCH t.py RANK",
        "nice -n 5 python3 TORCH t.py RANK",
        "time -p python3 TORCH t.py RANK",
        "conda run -n e --no-capture-output python TORCH t.py RANK",
        "conda run -n python3 python3 TORCH t.py RANK",
        "taskset -c 0-3 timeout 1h python3 TORCH t.py RANK python3 u.py",
    ];

    const SHELL: &[&str] = &[
        "python3 TORCH t.py RANK",
        " python3 TORCH t.py RANK && x",
        "cd x && python3 TORCH t.py RANK",
        "cd /opt/python && python3 TORCH t.py RANK",
        "(cd x; exec python3 -u TORCH t.py RANK --a 'b c') 2>&1 | tee log",
        "source env.sh\n\"$CONDA\"/bin/python TORCH -m mod RANK >log",
        "export X=$(python3 -c 'import torch; print(1)') && python3 TORCH t.py RANK",
        "python3 -c 'import torch' && python3 TORCH t.py RANK",
        "echo 'run python3 t.py' && A=B numactl -N0 python3 TORCH t.py RANK",
        "python3 TORCH 'my script.py' RANK # python3 u.py",
        "python3 TORCH \\\n  t.py RANK \\\n  --lr 0.1",
    ];

    #[test]
    fn where_torch_goes() {
        let torch: [OsString; 3] = ["-m".into(), "torch.x".into(), "a b".into()];
        for line in WORDS {
            let plain = line.replace(" TORCH", "").replace(" RANK", "");
            assert_eq!(
                shown(words(&plain).under_torch(&torch)),
                line.replace("TORCH", "-m torch.x a b").replace(" RANK", "")
            );
            assert_eq!(
                shown(words(&plain).with_local_rank("--local_rank", 3)),
                line.replace(" TORCH", "").replace("RANK", "--local_rank=3")
            );
        }
        for line in SHELL {
            let plain = UserCommand::Shell(line.replace(" TORCH", "").replace(" RANK", ""));
            assert_eq!(
                shown(plain.under_torch(&torch)),
                line.replace("TORCH", "-m torch.x 'a b'")
                    .replace(" RANK", "")
            );
            assert_eq!(
                shown(plain.with_local_rank("--local_rank", 3)),
                line.replace(" TORCH", "").replace("RANK", "--local_rank=3")
            );
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_torch_cannot_start() {
        let table = [
            (words("./train.py"), "has no Python interpreter"),
            (words("pythonic t.py"), "has no Python interpreter"),
            (words("python-wrapper t.py"), "has no Python interpreter"),
            (words("pypy3 t.py"), "--launcher direct"),
            (
                words("uv run --python=python3 t.py"),
                "has no Python interpreter",
            ),
            (words("/home/python/run.sh"), "has no Python interpreter"),
            (words("python3"), "calls python without a script"),
            (
                words("python3 -"),
                "gives python -, and torch's launcher starts scripts",
            ),
            (words("python3 -c 1"), "gives python -c, and"),
            (
                words("python3 -X dev t.py"),
                "gives python -X, which torch's launcher does not hand on",
            ),
            (
                UserCommand::Words(vec![
                    "bash".into(),
                    "-lc".into(),
                    "cd x && python3 t.py".into(),
                ]),
                "give shell text as the command itself",
            ),
            (
                UserCommand::Shell("\"$PYTHON\" t.py".into()),
                "has no Python interpreter",
            ),
            (
                UserCommand::Shell("bash -c 'python3 t.py'".into()),
                "has no Python interpreter",
            ),
            (
                UserCommand::Shell("python3 a.py && python3 b.py".into()),
                "runs 2 Python programs",
            ),
            (UserCommand::Shell("python3 -c x".into()), "gives python -c"),
            (
                UserCommand::Shell("cat >t.py <<E\nE\npython3 t.py".into()),
                "here-document",
            ),
        ];
        for (command, problem) in table {
            let got = shown(command.under_torch(&[]));
            assert!(
                got.starts_with("COMMAND: ") && got.contains(problem) && got.contains("\n  fix: "),
                "{command:?}: {got}"
            );
        }
        assert_eq!(
            shown(words("./train.py -x").with_local_rank("--local_rank", 1)),
            "./train.py -x --local_rank=1"
        );
        assert!(
            shown(UserCommand::Shell("./t.py >log".into()).with_local_rank("--local_rank", 1))
                .contains("fix: give the command as words")
        );
    }

    #[test]
    fn the_interpreter_of_an_environment() {
        let table = [
            (words("python3 t.py"), "/v/bin/python3 t.py"),
            (
                words("python -u t.py python3"),
                "/v/bin/python3 -u t.py python3",
            ),
            (words("python3.11 t.py"), "/v/bin/python3 t.py"),
            (words("/usr/bin/python3 t.py"), "/usr/bin/python3 t.py"),
            (words("./python3 t.py"), "./python3 t.py"),
            (words("python3-dbg t.py"), "python3-dbg t.py"),
            (
                words("numactl -N0 python3 t.py"),
                "numactl -N0 python3 t.py",
            ),
            (UserCommand::Shell("python3 t.py".into()), "python3 t.py"),
        ];
        for (command, wanted) in table {
            assert_eq!(
                shown(Ok(command.with_interpreter("/v/bin/python3"))),
                wanted
            );
        }
        assert_eq!(
            (
                words("python3.11 t").python_version(),
                words("python t").python_version()
            ),
            (Some("3.11"), Some(""))
        );
        assert_eq!(
            (
                words("/bin/python3 t").python_version(),
                UserCommand::Shell("python3".into()).python_version()
            ),
            (None, None)
        );
    }

    #[test]
    fn what_a_command_runs() {
        let shell = |text: &str| UserCommand::Shell(text.to_owned());
        let table = [
            (
                words("/v/python3 -u t.py u.py"),
                Some("/v/python3"),
                Some("t.py"),
            ),
            (words("python3 -X dev t.py"), Some("python3"), Some("t.py")),
            (words("python3 -m pkg.t"), Some("python3"), None),
            (words("python3 -c t.py"), Some("python3"), None),
            (words("numactl -N0 python3 t.py"), None, Some("t.py")),
            (words("nvidia-smi -L"), None, None),
            (
                shell("python3 'my t.py' >log"),
                Some("python3"),
                Some("my t.py"),
            ),
            (shell("python3 $SCRIPT"), Some("python3"), None),
            (shell("cd x && python3 t.py"), None, None),
            (shell("python3 a.py && python3 b.py"), Some("python3"), None),
        ];
        for (command, python, script) in table {
            assert_eq!(
                (
                    command.interpreter().as_deref(),
                    command.script_file().as_deref()
                ),
                (python, script),
                "{command:?}"
            );
        }
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
