//! Runs the user's shell text so that it means the same on each host.
//!
//! A shell reads start-up files also for `-c`: zsh and fish always, bash below sshd. Their settings
//! would override those of the process record, on some hosts and not on others. So the record's
//! environment is set once more in the shell itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use wire::Text;
use wire::job::{Command, Process};

/// The user's shell.
pub fn user_shell() -> OsString {
    env::var_os("SHELL")
        .filter(|shell| !shell.is_empty())
        .unwrap_or_else(|| "/bin/sh".into())
}

/// Whether the user's shell is csh or tcsh, which has a language of its own.
pub fn is_csh() -> bool {
    kind(&user_shell()) == Kind::Csh
}

/// The words to execute for a process: its own, or the user's shell with a text.
pub fn words(process: &Process) -> Vec<OsString> {
    match (&process.command, &process.setup) {
        (Command::Words(words), None) => words.iter().map(|word| word.0.clone()).collect(),
        (Command::Words(words), setup) => shell_words(&process.env, setup.as_deref(), &exec(words)),
        (Command::Shell(text), setup) => {
            shell_words(&process.env, setup.as_deref(), text.as_bytes())
        }
    }
}

/// The user's shell with a text, preceded by these variables and a setup. The shell should also get
/// the variables in its environment.
pub fn shell_words(
    variables: &[(String, Text)],
    setup: Option<&str>,
    text: &[u8],
) -> Vec<OsString> {
    let shell = user_shell();
    let mut script = exports(&shell, variables);
    if let Some(setup) = setup {
        script.extend_from_slice(setup.as_bytes());
        script.push(b'\n');
    }
    script.extend_from_slice(text);
    vec![shell, "-c".into(), OsString::from_vec(script)]
}

/// Shell text that replaces the shell by a command.
fn exec(words: &[Text]) -> Vec<u8> {
    let quoted = words
        .iter()
        .flat_map(|word| [b" ".to_vec(), quoted(&word.0)].concat());
    b"exec".iter().copied().chain(quoted).collect()
}

/// A word quoted for any shell.
pub fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(br"'\''"),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
    text
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

/// Sets these variables in the shell's language, on the line on which the text begins.
fn exports(shell: &OsStr, variables: &[(String, Text)]) -> Vec<u8> {
    let kind = kind(shell);
    let mut text = Vec::new();
    for (name, value) in variables {
        match kind {
            Kind::Posix => {
                text.extend([b"export ", name.as_bytes(), b"=", &quoted(&value.0), b"; "].concat());
            }
            Kind::Fish => text.extend(
                [
                    b"set -gx ",
                    name.as_bytes(),
                    b" ",
                    &quoted_for_fish(value),
                    b"; ",
                ]
                .concat(),
            ),
            // csh cannot quote these reliably; they are in its environment
            Kind::Csh if value.bytes().iter().any(|byte| b"\n!".contains(byte)) => {}
            Kind::Csh => {
                text.extend([b"setenv ", name.as_bytes(), b" ", &quoted(&value.0), b"; "].concat());
            }
            Kind::Unknown => {}
        }
    }
    text
}

/// In fish a backslash is special only before a quote or another backslash.
fn quoted_for_fish(value: &Text) -> Vec<u8> {
    let escaped = value.bytes().iter().flat_map(|byte| match byte {
        b'\'' | b'\\' => vec![b'\\', *byte],
        other => vec![*other],
    });
    [b'\''].into_iter().chain(escaped).chain([b'\'']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_is_spoken_to_in_its_language() {
        let variables = [
            ("A".to_owned(), Text::from("it's \\ a\nb")),
            ("PATH".to_owned(), Text::from("/v/bin:/bin")),
        ];
        let table = [
            (
                "/bin/bash",
                "export A='it'\\''s \\ a\nb'; export PATH='/v/bin:/bin'; ",
            ),
            (
                "zsh",
                "export A='it'\\''s \\ a\nb'; export PATH='/v/bin:/bin'; ",
            ),
            (
                "/usr/bin/fish",
                "set -gx A 'it\\'s \\\\ a\nb'; set -gx PATH '/v/bin:/bin'; ",
            ),
            ("/bin/tcsh", "setenv PATH '/v/bin:/bin'; "),
            ("/opt/nu", ""),
        ];
        for (shell, expected) in table {
            assert_eq!(
                String::from_utf8(exports(OsStr::new(shell), &variables)).unwrap(),
                expected,
                "{shell}"
            );
        }
    }

    #[test]
    fn words_stay_words_behind_a_setup() {
        let mut process = Process {
            index: 0,
            role: job::Role::Worker,
            rank: 0,
            command: Command::Words(vec!["python3".into(), "it's".into(), "a b".into()]),
            setup: None,
            cwd: None,
            cpus: None,
            env: Vec::new(),
            port: None,
        };
        assert_eq!(words(&process), ["python3", "it's", "a b"]);
        process.setup = Some("module load x".to_owned());
        assert_eq!(
            words(&process)[1..],
            ["-c", "module load x\nexec 'python3' 'it'\\''s' 'a b'"]
        );
        process.command = Command::Shell("echo 1".to_owned());
        process.setup = None;
        assert_eq!(words(&process)[1..], ["-c", "echo 1"]);
    }

    #[test]
    fn quotes_in_words() {
        assert_eq!(quoted(OsStr::new("it's")), br"'it'\''s'");
    }
}
