//! The output of `--dry-run`: commands to paste.

use record::error::Fault;
use record::quote;
use record::{Command, Host, Process};
use remote::RemoteOptions;
use std::os::unix::ffi::OsStrExt;

/// The user's shell text; words behind a setup are quoted for the shell.
fn shell_text(command: &Command, setup: Option<&str>) -> Vec<u8> {
    let mut text = setup.map_or(Vec::new(), |setup| format!("{setup}\n").into_bytes());
    match command {
        Command::Shell(own) => text.extend_from_slice(own.as_bytes()),
        Command::Words(words) => {
            text.extend_from_slice(b"exec ");
            text.extend(quote::sh_words(words.iter().map(|word| word.as_bytes())));
        }
    }
    text
}

/// Runs the process on its host with all of its settings.
pub fn pasted(options: &RemoteOptions, host: &Host, process: &Process) -> Result<Vec<u8>, Fault> {
    let mut line = Vec::new();
    if let Some(cwd) = &process.cwd {
        line.extend_from_slice(b"cd ");
        line.extend(quote::sh(cwd));
        line.extend_from_slice(b" && ");
    }
    if let Some(cpus) = &process.cpus {
        line.extend_from_slice(b"taskset -c ");
        line.extend(quote::sh(cpus));
        line.push(b' ');
    }
    line.extend_from_slice(b"env");
    for (name, value) in process.environment()? {
        line.push(b' ');
        line.extend(quote::sh(
            [name.as_bytes(), b"=", value.as_bytes()].concat(),
        ));
    }
    line.push(b' ');
    match (process.command()?, &process.setup) {
        (Command::Words(words), None) => {
            line.extend(quote::sh_words(words.iter().map(|word| word.as_bytes())));
        }
        (command, setup) => {
            line.extend_from_slice(b"\"${SHELL:-/bin/sh}\" -c ");
            line.extend(quote::sh(shell_text(&command, setup.as_deref())));
        }
    }
    let mut text = format!("# {} ({})\nssh", process.location(), process.ip).into_bytes();
    for word in remote::ssh_options(options) {
        text.push(b' ');
        text.extend(quote::sh(word.as_bytes()));
    }
    text.extend(format!(" {} ", quote::shown(host.target())).as_bytes());
    text.extend(quote::sh(line));
    text.push(b'\n');
    Ok(text)
}
