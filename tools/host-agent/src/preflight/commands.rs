//! Checks the command of a process, in the environment and folder that it will have.

use crate::job::JobAssembly;
use crate::python::{self, PythonFacts};
use crate::shell::{self, Invocation};
use crate::supervise::start;
use nix::unistd::{AccessFlags, access};
use record::term;
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::Failure;
use wire::Text;
use wire::job::{Command, Process};
use wire::preflight::{Finding, Module, PythonQuestion, Subject};

/// Checks that the command exists or the shell runs it, and if it is a Python, that it runs and
/// finds its modules.
pub fn check(process: &Process, question: Option<&PythonQuestion>) -> Vec<Finding> {
    if !folder(process).is_dir() {
        return Vec::new();
    }
    if let Command::Words(words) = &process.command
        && let Some(first) = words.first()
        && (process.setup.is_none() || question.is_none())
        && !is_there(process, &first.0)
    {
        let problem = format!("no such command: {}", first.0.to_string_lossy());
        return vec![Finding::problem(Subject::Command, problem)];
    }
    let runs_in_shell = process.setup.is_some() || matches!(process.command, Command::Shell(_));
    if let Some(problem) = runs_in_shell.then(|| shell_problem(process)).flatten() {
        return vec![Finding::problem(Subject::Shell, problem)];
    }
    question.map_or_else(Vec::new, |question| ask_python(process, question))
}

/// What only a shell writes that runs the text which it is given.
const SHELL_RUNS: &str = "dgl-tools: this shell runs text";

/// The problem of a shell that ends well without having run anything, because a start-up file
/// executes another program. Other failures are told by whatever the shell is to run.
fn shell_problem(process: &Process) -> Option<String> {
    let text = format!("echo '{SHELL_RUNS}'");
    let invocation = shell::in_shell(&process.env, None, text.as_bytes());
    let answer = invocation.ask(folder(process)).ok()?;
    let ends_well = answer.status.is_some_and(|status| status.success());
    if !ends_well || answer.text().contains(SHELL_RUNS) {
        return None;
    }
    let (name, cause) = (shell::user_shell(), shell::replaced_by());
    Some(format!(
        "{} does not run the text that it is given: {}",
        name.to_string_lossy(),
        cause
            .as_deref()
            .unwrap_or("a start-up file ends it or executes another program"),
    ))
}

/// Checks that the kernel takes the words and variables of each process: it limits each of them,
/// and their sum.
pub fn check_sizes(job: &JobAssembly) -> Result<Option<Finding>, Failure> {
    let identity = job.identity()?;
    let largest = |size: fn(&[(usize, String)]) -> Option<usize>| {
        let processes = job.processes().iter();
        processes.max_by_key(|process| size(&parts(process)))
    };
    let by_part = largest(|parts| parts.iter().map(|(size, _)| *size).max());
    let by_sum = largest(|parts| Some(parts.iter().map(|(size, _)| size).sum()));
    let mut tried = by_part.into_iter().chain(by_sum);
    let Some(process) = tried.find(|process| !start::fits(identity, process)) else {
        return Ok(None);
    };
    let (size, name) = parts(process).into_iter().max().unwrap_or_default();
    let problem = format!(
        "the command, setup and environment of {} {} are longer than the kernel takes (E2BIG); \
         the longest part, {name}, has {}",
        process.role.name(),
        process.rank,
        term::bytes(size as u64),
    );
    Ok(Some(Finding::problem(Subject::ArgumentSizes, problem)))
}

/// The sizes of the words and variables with which a process is started.
fn parts(process: &Process) -> Vec<(usize, String)> {
    let Invocation { words, env } = shell::invocation(process);
    let words = words.iter().map(|word| (word.len(), "a word".to_owned()));
    let variables = env.iter();
    let variables = variables.map(|(name, value)| (value.bytes().len(), format!("${name}")));
    variables.chain(words).collect()
}

fn folder(process: &Process) -> &Path {
    process.cwd.as_ref().map_or(Path::new("."), Text::path)
}

fn is_there(process: &Process, word: &OsStr) -> bool {
    if process.setup.is_none() {
        let own = process
            .env
            .iter()
            .find(|(name, _)| name == "PATH")
            .map(|(_, path)| path.0.clone());
        let path = own.or_else(|| env::var_os("PATH")).unwrap_or_default();
        return is_in_path(word, &path, folder(process));
    }
    // csh looks for commands in another way
    if shell::is_csh() {
        return true;
    }
    let text = [b"command -v -- ", &*shell::quoted(word)].concat();
    let invocation = shell::in_shell(&process.env, process.setup.as_deref(), &text);
    let answer = invocation.ask(folder(process));
    answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.success()))
}

/// Looks for a program as execvp(3) does.
fn is_in_path(word: &OsStr, path: &OsStr, folder: &Path) -> bool {
    let runs = |file: &Path| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    if word.as_bytes().contains(&b'/') {
        return runs(&folder.join(word));
    }
    !word.is_empty()
        && env::split_paths(path).any(|location| runs(&folder.join(location).join(word)))
}

fn ask_python(process: &Process, question: &PythonQuestion) -> Vec<Finding> {
    let interpreter = &question.interpreter.0;
    let invocation = match (&process.command, &process.setup) {
        (Command::Words(_), None) => Invocation {
            words: vec![interpreter.clone(), "-c".into(), python::ASK.into()],
            env: process.env.clone(),
        },
        _ => python::asked_in_shell(interpreter, &process.env, process.setup.as_deref()),
    };
    let script = question.script.clone().unwrap_or_default();
    match python::ask(invocation, folder(process), Some(&script)) {
        Ok(facts) => findings(facts, question),
        Err(why) => {
            let problem = format!("its Python does not run: {why}");
            vec![Finding::problem(Subject::Python, problem)]
        }
    }
}

fn findings(facts: PythonFacts, question: &PythonQuestion) -> Vec<Finding> {
    let imported = facts.imports.iter().flatten();
    let needed: Vec<&Module> = question.modules.iter().chain(imported).collect();
    let is_missing = |module: &Module| {
        let version = match module {
            Module::Dgl => &facts.dgl,
            Module::Torch => &facts.torch,
        };
        needed.contains(&module) && version.is_none()
    };
    let missing = Module::ALL.into_iter().filter(is_missing).collect();
    vec![Finding::Python {
        executable: facts.executable.unwrap_or_default(),
        version: facts.version.unwrap_or_default(),
        missing,
        imports: facts.imports,
        dgl: facts.dgl,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(command: Command, setup: Option<&str>, env: &[(&str, &str)]) -> Process {
        Process {
            index: 0,
            role: job::Role::Trainer,
            service: false,
            rank: 0,
            command,
            setup: setup.map(str::to_owned),
            cwd: Some("/".into()),
            cpus: None,
            env: env
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Text::from(*value)))
                .collect(),
            port: None,
        }
    }

    #[test]
    fn commands_are_looked_for_as_they_will_be_started() {
        let words = |word: &str| Command::Words(vec![word.into()]);
        let nowhere = [("PATH", "/nowhere")];
        let table: [(Process, bool); 7] = [
            (process(words("sh"), None, &[]), true),
            (process(words("sh"), None, &nowhere), false),
            (process(words("bin/sh"), None, &nowhere), true),
            (process(words("/bin"), None, &[]), false),
            (process(words("sh"), Some("PATH=/nowhere"), &[]), false),
            (
                process(words("sh"), Some("PATH=/bin:/usr/bin"), &nowhere),
                true,
            ),
            (
                process(Command::Shell("no such thing".to_owned()), None, &[]),
                true,
            ),
        ];
        for (process, is_there) in table {
            assert_eq!(check(&process, None).is_empty(), is_there, "{process:?}");
        }
    }
}
