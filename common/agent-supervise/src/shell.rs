//! Runs the user's shell text with the same meaning on each host.
//!
//! Shells read start-up files even with `-c`: zsh and fish always, bash below sshd. These would
//! override variables of the process record on some hosts only, so the shell sets the record's
//! environment again. It takes the text for that from its environment, because every user of the
//! host can read its command line.

use crate::ranks;
use agent::job::HostProcess;
use host::command::{self, Answer};
use record::Command;
use record::quote::quoted;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};
use wire::Text;

pub fn user_shell() -> OsString {
    env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// Whether the user's shell is csh or tcsh, whose language differs from that of sh.
pub fn is_csh() -> bool {
    kind(&user_shell()) == Kind::Csh
}

/// The start-up file that replaces the user's shell by another program: `~/.bashrc, line 3,
/// executes another program: exec zsh -l`.
pub fn replaced_by() -> Option<String> {
    let shell = user_shell();
    let names: &[&str] = match Path::new(&shell).file_name()?.to_str()? {
        "bash" => &[".bashrc"],
        "zsh" => &[".zshenv"],
        "fish" => &[".config/fish/config.fish"],
        "csh" | "tcsh" => &[".tcshrc", ".cshrc"],
        _ => return None,
    };
    let home = env::var_os("HOME")?;
    let found = |name: &&str| {
        let text = fs::read_to_string(Path::new(&home).join(name)).ok()?;
        let is_exec = |line: &str| {
            let mut commands = line.split([';', '&', '|']);
            !line.trim_start().starts_with('#')
                && commands.any(|command| command.trim_start().starts_with("exec "))
        };
        let (number, line) = (1..).zip(text.lines()).find(|(_, line)| is_exec(line))?;
        let line = line.trim();
        Some(format!(
            "~/{name}, line {number}, executes another program: {line}"
        ))
    };
    names.iter().find_map(found)
}

/// How long to wait for a setup and a Python, together with the shell that starts them: activating
/// conda takes seconds; after this time it hangs. The tool that asks waits a little longer.
pub const ASK_LIMIT: Duration = Duration::from_secs(50);
/// How much output of a setup and a Python is kept.
const MAX_OUTPUT: usize = 256 << 10;

/// The text that sets the variables, and removes this one.
const EXPORTS: &str = "DGL_TOOLS_EXPORTS";
/// The prefix of variables with copies of the values; a number follows. One string with all values
/// could be longer than the kernel accepts (128 KiB).
const VALUE: &str = "DGL_TOOLS_";

pub struct Invocation {
    pub words: Vec<OsString>,
    pub env: Vec<(String, Text)>,
}

impl Invocation {
    /// Returns its output; kills it at that time.
    pub fn ask(self, folder: &Path, until: Instant) -> io::Result<Answer> {
        let [program, arguments @ ..] = &self.words[..] else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = process::Command::new(program);
        ranks::remove(&mut command);
        command.args(arguments).envs(self.env).current_dir(folder);
        let left = until.saturating_duration_since(Instant::now());
        command::ask(command, left, MAX_OUTPUT, || false)
    }
}

pub fn invocation(process: &HostProcess) -> Invocation {
    match (&process.command, &process.record.setup) {
        (Command::Words(words), None) => Invocation {
            words: words.clone(),
            env: process.env.clone(),
        },
        (Command::Words(words), setup) => in_shell(&process.env, setup.as_deref(), &exec(words)),
        (Command::Shell(text), setup) => in_shell(&process.env, setup.as_deref(), text.as_bytes()),
    }
}

/// The user's shell sets these variables, then runs a setup and a text.
pub fn in_shell(env: &[(String, Text)], setup: Option<&str>, text: &[u8]) -> Invocation {
    let shell = user_shell();
    let (mut script, mut env) = (Vec::new(), env.to_vec());
    if let Some(exports) = exports(&shell, &env) {
        script.extend_from_slice(format!("eval \"${EXPORTS}\"; ").as_bytes());
        let values = (0..)
            .zip(&env)
            .map(|(number, (_, value))| (value_name(number), value));
        let values: Vec<_> = values.map(|(name, value)| (name, value.clone())).collect();
        env.extend(values);
        env.push((EXPORTS.to_owned(), Text::from(&*exports)));
    }
    if let Some(setup) = setup {
        script.extend_from_slice(setup.as_bytes());
        script.push(b'\n');
    }
    script.extend_from_slice(text);
    Invocation {
        words: vec![shell, "-c".into(), OsString::from_vec(script)],
        env,
    }
}

fn exec(words: &[OsString]) -> Vec<u8> {
    let quoted = words
        .iter()
        .flat_map(|word| [b" ".to_vec(), quoted(word.as_bytes())].concat());
    b"exec".iter().copied().chain(quoted).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Posix,
    Fish,
    Csh,
    Unknown,
}

fn kind(shell: &OsStr) -> Kind {
    let name = Path::new(shell)
        .file_name()
        .map(OsStr::to_string_lossy)
        .unwrap_or_default();
    match &*name {
        "sh" | "ash" | "bash" | "busybox" | "dash" | "ksh" | "ksh93" | "mksh" | "yash" | "zsh" => {
            Kind::Posix
        }
        "fish" => Kind::Fish,
        name if name.ends_with("csh") => Kind::Csh,
        _ => Kind::Unknown,
    }
}

fn value_name(number: usize) -> String {
    format!("{VALUE}{number}")
}

/// The value of [`EXPORTS`]: text in the shell's language that sets these variables from the copies
/// of their values, and removes the copies and itself. `None` if the language is unknown.
fn exports(shell: &OsStr, variables: &[(String, Text)]) -> Option<String> {
    if variables.is_empty() {
        return None;
    }
    let (set, value, remove) = match kind(shell) {
        Kind::Posix => ("export", "=\"$COPY\"", "unset"),
        Kind::Fish => ("set -gx", " \"$COPY\"", "set -e"),
        Kind::Csh => ("setenv", " \"$COPY:q\"", "unsetenv"),
        Kind::Unknown => return None,
    };
    let set_one = |(number, (name, _)): (usize, &(String, Text))| {
        let copy = value_name(number);
        let value = value.replace("COPY", &copy);
        format!("{set} {name}{value}; {remove} {copy}; ")
    };
    let text: String = variables.iter().enumerate().map(set_one).collect();
    Some(format!("{text}{remove} {EXPORTS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words_behind_a_setup() {
        let ip = record::IpAddr(std::net::Ipv4Addr::LOCALHOST);
        let mut record = record::Process::new(0, 0, ip, record::Role::Worker, 0);
        record.set_words(&["python3".into(), "it's".into(), "a b".into()]);
        let mut process = HostProcess::new(0, record).unwrap();
        let words = |process: &HostProcess| invocation(process).words;
        assert_eq!(words(&process), ["python3", "it's", "a b"]);
        process.record.setup = Some("module load x".to_owned());
        assert_eq!(
            words(&process)[1..],
            ["-c", "module load x\nexec 'python3' 'it'\\''s' 'a b'"]
        );
        process.command = Command::Shell("echo 1".to_owned());
        process.record.setup = None;
        assert_eq!(words(&process)[1..], ["-c", "echo 1"]);
    }
}
