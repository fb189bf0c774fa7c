//! What a word of a command says of Python.

/// Whether it is an interpreter: `python`, `python3`, `/opt/env/bin/python3.11`, `python3.13t`, `python3-dbg`; no option, no assignment.
pub fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let version = name.strip_prefix("python").map(|rest| rest.trim_end_matches("-dbg").trim_end_matches(['d', 't']));
    !word.starts_with('-') && !word.contains('=') && version.is_some_and(|v| v.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}
