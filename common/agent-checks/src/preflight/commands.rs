//! Checks the command of each process, in the environment and directory that it will have.

use super::needs;
use crate::python::{self, PythonFacts};
use agent::job::HostProcess;
use agent_supervise::shell::{self, ASK_LIMIT, Invocation};
use agent_supervise::start;
use host::executable;
use nix::unistd::{AccessFlags, access};
use record::{Command, quote, term};
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Instant;
use wire::Text;
use wire::job::Job;
use wire::preflight::{Finding, Module, Problem, Subject};

/// Variables that decide which commands and modules are found.
const SEARCHED: [&str; 5] = [
    "PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
];

#[derive(PartialEq, Eq)]
struct PythonQuestion<'a> {
    interpreter: &'a str,
    /// The script that it will run, whose imports must be found, too; `None` if it runs a module.
    script: Option<&'a str>,
    modules: &'static [Module],
}

impl PythonQuestion<'_> {
    fn of(process: &HostProcess) -> Option<PythonQuestion<'_>> {
        let interpreter = process.record.python.as_deref()?;
        let begins = match &process.command {
            Command::Words(words) => words.first()? == interpreter,
            Command::Shell(_) => true,
        };
        (begins && needs::names(&process.command, interpreter)).then(|| PythonQuestion {
            interpreter,
            script: needs::script(process),
            modules: if process.record.role.is_dgl() {
                &Module::ALL
            } else {
                &[]
            },
        })
    }
}

/// Checks each command once, all at the same time, because a tool waits for the answer only a
/// little longer than for one. Also returns whether their Pythons use or may use torch; `None` if
/// none has answered.
pub fn check(processes: &[HostProcess]) -> (Vec<Finding>, Option<bool>) {
    let mut commands = Vec::new();
    for process in processes {
        let first = match &process.command {
            Command::Words(words) => words.first(),
            // for other shell text only the shell can be checked
            Command::Shell(_) => None,
        };
        let question = PythonQuestion::of(process);
        let searched = SEARCHED.map(|name| process.variable(name));
        let place = (process.folder(), &process.record.setup, searched);
        let key = (first, question, place);
        if commands.iter().all(|(_, other)| *other != key) {
            commands.push((process, key));
        }
    }
    let until = Instant::now() + ASK_LIMIT;
    let checked = thread::scope(|scope| {
        let begun = commands.iter().map(|(process, (_, question, _))| {
            let check = move || check_command(process, question.as_ref(), until);
            let thread = thread::Builder::new().spawn_scoped(scope, check);
            (thread.ok(), check)
        });
        let begun: Vec<_> = begun.collect();
        let checked = begun.into_iter().map(|(thread, check)| match thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            None => check(),
        });
        checked.collect::<Vec<_>>()
    });
    let (mut findings, mut may_use_torch) = (Vec::new(), None);
    for result in checked {
        match result {
            Ok(None) => {}
            Ok(Some((facts, modules))) => {
                let imports = facts.imports.as_ref();
                let torch = imports.is_none_or(|imports| imports.contains(&Module::Torch));
                may_use_torch = may_use_torch.max(Some(torch));
                findings.extend(missing_modules(&facts, modules).map(Finding::from));
                findings.extend(facts.dgl.map(|version| Finding::Dgl { version }));
            }
            Err(problem) => findings.push(problem.into()),
        }
    }
    (findings, may_use_torch)
}

/// Checks that the command exists, or that the shell runs text. Returns what a Python answers, and
/// the modules that it must find.
fn check_command(
    process: &HostProcess,
    question: Option<&PythonQuestion<'_>>,
    until: Instant,
) -> Result<Option<(PythonFacts, &'static [Module])>, Problem> {
    let setup = &process.record.setup;
    if !process.folder().is_dir() {
        return Ok(None);
    }
    if let Some(problem) = obstacle(process) {
        return Err(problem);
    }
    if let Command::Words(words) = &process.command
        && let Some(first) = words.first()
        && (setup.is_none() || question.is_none())
        && !is_there(process, first, until)
    {
        let problem = format!("no such command: {}", first.to_string_lossy());
        let path = first.as_bytes().contains(&b'/');
        return Err(Problem::new(Subject::Command { path }, problem));
    }
    let runs_in_shell = setup.is_some() || matches!(process.command, Command::Shell(_));
    if let Some(problem) = runs_in_shell
        .then(|| shell_problem(process, until))
        .flatten()
    {
        return Err(Problem::new(Subject::Shell, problem));
    }
    let Some(question) = question else {
        return Ok(None);
    };
    let facts = ask_python(process, question, until).map_err(|why| {
        let problem = format!("its Python does not run: {why}");
        Problem::new(Subject::Python, problem)
    })?;
    Ok(Some((facts, question.modules)))
}

/// Why the kernel or a shell does not run a file that is there, if the command begins with it or
/// gives it to a shell.
fn obstacle(process: &HostProcess) -> Option<Problem> {
    let Command::Words(words) = &process.command else {
        return None;
    };
    let first = words.first()?;
    let file = |word: &OsStr| process.folder().join(word);
    let is_path = first.as_bytes().contains(&b'/');
    let problem = is_path
        .then(|| executable::obstacle(&file(first)))
        .flatten();
    problem.or_else(|| {
        let shell = Path::new(first).file_name()?.to_str()?;
        let reads_script = ["sh", "bash", "dash", "ksh", "zsh"].contains(&shell);
        executable::windows_line_ends(&file(words.get(1).filter(|_| reads_script)?))
    })
}

/// A shell that runs text prints this.
const SHELL_RUNS: &str = "dgl-tools: this shell runs text";

/// The problem of a shell that succeeds without running anything, because a start-up file executes
/// another program. Other failures appear when the shell runs the command.
fn shell_problem(process: &HostProcess, until: Instant) -> Option<String> {
    let text = format!("echo '{SHELL_RUNS}'");
    let invocation = shell::in_shell(&process.env, None, text.as_bytes());
    let answer = invocation.ask(process.folder(), until).ok()?;
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

/// The kernel limits each argument and variable of a process, and their sum.
pub fn check_sizes(job: &Job, processes: &[HostProcess]) -> Option<Problem> {
    let largest = |size: fn(&[(usize, String)]) -> Option<usize>| {
        let processes = processes.iter();
        processes.max_by_key(|process| size(&parts(process)))
    };
    let by_part = largest(|parts| parts.iter().map(|(size, _)| *size).max());
    let by_sum = largest(|parts| Some(parts.iter().map(|(size, _)| size).sum()));
    let mut tried = by_part.into_iter().chain(by_sum);
    let process = tried.find(|process| !start::fits(job, process))?;
    let (size, name) = parts(process).into_iter().max().unwrap_or_default();
    let problem = format!(
        "the command, setup and environment of {} {} are longer than the kernel accepts (E2BIG); \
         the longest part, {name}, has {}",
        process.record.role.name(),
        process.record.rank,
        term::bytes(size as u64),
    );
    Some(Problem::new(Subject::ArgumentSizes, problem))
}

fn parts(process: &HostProcess) -> Vec<(usize, String)> {
    let Invocation { words, env } = shell::invocation(process);
    let words = words.iter().map(|word| (word.len(), "a word".to_owned()));
    let variables = env.iter();
    let variables = variables.map(|(name, value)| (value.bytes().len(), format!("${name}")));
    variables.chain(words).collect()
}

fn is_there(process: &HostProcess, word: &OsStr, until: Instant) -> bool {
    let Some(setup) = process.record.setup.as_deref() else {
        let planned = process.variable("PATH").map(OsStr::to_owned);
        let path = planned.or_else(|| env::var_os("PATH")).unwrap_or_default();
        return is_in_path(word, &path, process.folder());
    };
    // csh searches for commands in another way
    if shell::is_csh() {
        return true;
    }
    let text = [b"command -v -- ", &*quote::quoted(word.as_bytes())].concat();
    let invocation = shell::in_shell(&process.env, Some(setup), &text);
    let answer = invocation.ask(process.folder(), until);
    answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.success()))
}

/// Searches as execvp(3) does.
fn is_in_path(word: &OsStr, path: &OsStr, folder: &Path) -> bool {
    let runs = |file: &Path| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    if word.as_bytes().contains(&b'/') {
        return runs(&folder.join(word));
    }
    !word.is_empty()
        && env::split_paths(path).any(|location| runs(&folder.join(location).join(word)))
}

fn ask_python(
    process: &HostProcess,
    question: &PythonQuestion<'_>,
    until: Instant,
) -> Result<PythonFacts, String> {
    let interpreter = OsStr::new(question.interpreter);
    let invocation = match (&process.command, &process.record.setup) {
        (Command::Words(_), None) => Invocation {
            words: vec![interpreter.to_owned(), "-c".into(), python::ASK.into()],
            env: process.env.clone(),
        },
        (_, setup) => python::asked_in_shell(interpreter, &process.env, setup.as_deref()),
    };
    let script = Text::from(question.script.unwrap_or_default());
    python::ask(invocation, process.folder(), Some(&script), until)
}

/// Those of these modules, and of the imports of its script, that a Python does not find.
fn missing_modules(facts: &PythonFacts, modules: &[Module]) -> impl Iterator<Item = Problem> {
    let needs = |module: &Module| {
        modules.contains(module) || facts.imports.iter().flatten().any(|other| other == module)
    };
    let is_missing = |module: &Module| {
        let found = match module {
            Module::Dgl => &facts.dgl,
            Module::Torch => &facts.torch,
        };
        facts.knows_modules && found.is_none()
    };
    let missing = Module::ALL.into_iter();
    let missing = missing.filter(move |module| needs(module) && is_missing(module));
    missing.map(|module| {
        let problem = format!(
            "no module named {} for {} (Python {})",
            module.name(),
            facts.executable.as_deref().unwrap_or_default(),
            facts.version.as_deref().unwrap_or_default()
        );
        Problem::new(Subject::Module(module), problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_missing_only_if_the_python_knows() {
        for knows_modules in [false, true] {
            let facts = PythonFacts {
                knows_modules,
                ..PythonFacts::default()
            };
            let missing = missing_modules(&facts, &Module::ALL).count();
            assert_eq!(missing > 0, knows_modules);
        }
    }

    fn process(command: Command, setup: Option<&str>, env: &[(&str, &str)]) -> HostProcess {
        let ip = record::IpAddr(std::net::Ipv4Addr::LOCALHOST);
        let mut record = record::Process::new(0, 0, ip, record::Role::Trainer, 0);
        match command {
            Command::Words(words) => record.set_words(&words),
            Command::Shell(text) => record.shell = Some(text),
        }
        record.setup = setup.map(str::to_owned);
        record.cwd = Some("/".to_owned());
        for (name, value) in env {
            record.set_env(name, value.as_ref());
        }
        HostProcess::new(0, record).unwrap()
    }

    #[test]
    fn slow_commands_are_checked_at_the_same_time() {
        let slow = |setup: &str| process(Command::Words(vec!["sh".into()]), Some(setup), &[]);
        let begun = Instant::now();
        let processes = ["sleep 4", "sleep 4.1", "sleep 4.2", "sleep 4.3"].map(slow);
        assert_eq!(check(&processes).0, []);
        let took = begun.elapsed().as_secs();
        assert!((4..12).contains(&took), "{took} s");
    }

    #[test]
    fn a_command_is_checked_in_each_environment_and_directory() {
        let words = |word: &str| Command::Words(vec![word.into()]);
        let sh = |env: &[(&str, &str)]| process(words("sh"), None, env);
        let mut elsewhere = process(words("bin/sh"), None, &[]);
        elsewhere.record.cwd = Some("/proc".to_owned());
        let table = [
            (vec![sh(&[]), sh(&[])], 0),
            (vec![sh(&[]), sh(&[("PATH", "/nowhere")])], 1),
            (
                vec![sh(&[("PATH", "/nowhere")]), sh(&[("PATH", "/nowhere")])],
                1,
            ),
            (vec![process(words("bin/sh"), None, &[]), elsewhere], 1),
        ];
        for (processes, count) in table {
            assert_eq!(check(&processes).0.len(), count, "{processes:?}");
        }
        // a Python does not run without its library, which PYTHONHOME locates
        let python = |env: &[(&str, &str)]| {
            let mut process = process(words("python3"), None, env);
            process.record.python = Some("python3".to_owned());
            process.record.role = record::Role::Worker;
            process
        };
        let processes = [python(&[]), python(&[("PYTHONHOME", "/nowhere")])];
        assert_eq!(check(&processes).0.len(), 1);
    }

    #[test]
    fn commands_are_looked_for_as_they_will_be_started() {
        let words = |word: &str| Command::Words(vec![word.into()]);
        let nowhere = [("PATH", "/nowhere")];
        let table: [(HostProcess, bool); 7] = [
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
            assert_eq!(
                check_command(&process, None, Instant::now() + ASK_LIMIT).is_ok(),
                is_there,
                "{process:?}"
            );
        }
    }
}
