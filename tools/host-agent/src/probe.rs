//! What this host is and has.

use crate::{command, environment, procfs};
use nix::ifaddrs::getifaddrs;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::probe::{Card, Environment, Interpreter, Probe, Probed, Python};
use wire::{Failure, Text};

/// The question that a Python answers about itself, one line `dgl-tools-fact NAME VALUE` each.
const PYTHON_FACTS: &str = include_str!("python_facts.py");
/// Activating conda takes seconds; what takes longer than this hangs, and the tool that asks waits a little longer.
const PYTHON_LIMIT: Duration = Duration::from_secs(50);
/// What is kept of what a setup and a Python say.
const PYTHON_SAYS: usize = 256 << 10;
/// Of the line that tells why a Python does not run.
const WHY_SHOWN: usize = 300;
/// Where torch's rendezvous may listen: its own default is 29500.
const MASTER_PORTS: std::ops::RangeInclusive<u16> = 29500..=29599;

/// Looks at the host.
pub fn probe(wanted: &Probe) -> Probed {
    let mut probed = Probed {
        cards: cards(),
        cpus: usable_cpus(),
        mem_bytes: procfs::memory_bytes(),
        shm_free_bytes: free_bytes(Path::new("/dev/shm")),
        gpus: gpus(),
        nofile: most_open_files(),
        master_port: master_port(wanted.server_ports),
        home: env::var_os("HOME").map(Text),
        ..Probed::default()
    };
    if let Some(workspace) = &wanted.workspace {
        let folder = nearest_folder(Path::new(workspace));
        probed.free_bytes = free_bytes(&folder);
        let real = fs::canonicalize(&folder).unwrap_or(folder);
        probed.workspace_fs = procfs::file_system(&real.to_string_lossy());
    }
    match environment::find(&wanted.python) {
        Ok(environment) => {
            match ask_python(wanted, environment.as_ref()) {
                Ok(interpreter) => probed.python = Some(interpreter),
                Err(why) => probed.python_failure = Some(why),
            }
            probed.environment = environment;
        }
        Err(failure) => probed.environment_failure = Some(failure),
    }
    probed
}

/// The first address of each card, which is what SIOCGIFADDR tells to DGL. An alias such as `eth0:1` is no card.
fn cards() -> Vec<Card> {
    let mut cards: Vec<Card> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address.and_then(|address| Some(address.as_sockaddr_in()?.ip())) else { continue };
        let name = interface.interface_name;
        if !name.contains(':') && !cards.iter().any(|card| card.name == name) {
            cards.push(Card { name, address });
        }
    }
    cards
}

/// Those that a job may use, which may be fewer than there are.
fn usable_cpus() -> Option<u32> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    let count = (0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).count();
    u32::try_from(count).ok()
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let room = statvfs(folder).ok()?;
    room.blocks_available().checked_mul(room.fragment_size())
}

/// The folder itself or, while it is not there, the nearest one above it.
fn nearest_folder(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find(|folder| folder.is_dir());
    there.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

fn gpus() -> u32 {
    let count = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |entries| entries.flatten().count());
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn most_open_files() -> Option<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (hard != RLIM_INFINITY).then_some(hard)
}

/// Only a listener is in the way of torch's rendezvous; the graph servers will listen later.
fn master_port(servers: Option<(u16, u16)>) -> Option<u16> {
    let taken = procfs::listening_ports();
    let of_server = |port: u16| servers.is_some_and(|(first, last)| (first..=last).contains(&port));
    MASTER_PORTS.into_iter().find(|port| !of_server(*port) && !taken.contains(port))
}

/// Runs the Python as the job will: behind the setup, in the environment.
fn ask_python(wanted: &Probe, environment: Option<&Environment>) -> Result<Interpreter, Failure> {
    let interpreter = match (environment, &wanted.python) {
        (Some(environment), _) => &environment.interpreter,
        (None, Python::Command(word) | Python::Conda(word) | Python::Venv(word)) => word,
    };
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(shell);
    let setup = wanted.setup.as_deref().map_or(String::new(), |setup| format!("{setup}\n"));
    // the question is in a variable, because csh takes no line end within quotes
    let ask = "import os; exec(os.environ[\"DGL_TOOLS_QUESTION\"])";
    command.arg("-c").arg(format!("{setup}exec {} -c '{ask}'", quoted(interpreter))).env("DGL_TOOLS_QUESTION", PYTHON_FACTS);
    if let Some(environment) = environment {
        // as dgl-env sets it for the processes of the job
        command.env("PATH", format!("{}/bin:{}", environment.prefix, environment.path));
        command.env("DGL_TOOLS_PYTHON", &environment.interpreter);
        match &environment.conda_env {
            Some(name) => command.env("CONDA_PREFIX", &environment.prefix).env("CONDA_DEFAULT_ENV", name),
            None => command.env("VIRTUAL_ENV", &environment.prefix),
        };
    }
    let answer = command::ask(command, PYTHON_LIMIT, PYTHON_SAYS).map_err(|error| Failure::new(error.to_string()))?;
    if answer.status.is_none() {
        return Err(Failure::new(format!("no answer within {} s", PYTHON_LIMIT.as_secs())));
    }
    facts_of(&answer.text())
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Reads the answer. A setup may talk too: only marked lines count, and the last other one tells why there are none.
fn facts_of(said: &str) -> Result<Interpreter, Failure> {
    let mut interpreter = Interpreter::default();
    let (mut marked, mut last) = (false, "");
    for line in said.lines() {
        let Some(fact) = line.strip_prefix("dgl-tools-fact ") else {
            if !line.trim().is_empty() {
                last = line;
            }
            continue;
        };
        marked = true;
        let (name, value) = fact.split_once(' ').unwrap_or((fact, ""));
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        match name {
            "python" => interpreter.version = value,
            "executable" => interpreter.executable = value,
            "dgl" => interpreter.dgl = value,
            "torch" => interpreter.torch = value,
            _ => {}
        }
    }
    if marked { Ok(interpreter) } else { Err(Failure::new(last.chars().take(WHY_SHOWN).collect::<String>())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_tells_facts_or_why_it_does_not_run() {
        let whole =
            "Loading dgl/1.0\ndgl-tools-fact python 3.10.1\ndgl-tools-fact executable /v/bin/python 3\ndgl-tools-fact dgl 2.1.0\nbye\n";
        let interpreter = facts_of(whole).unwrap();
        assert_eq!(interpreter.version.as_deref(), Some("3.10.1"));
        assert_eq!(interpreter.executable.as_deref(), Some("/v/bin/python 3"));
        assert_eq!((interpreter.dgl.as_deref(), interpreter.torch), (Some("2.1.0"), None));
        assert_eq!(facts_of("hello\nsh: python9: not found\n \n").unwrap_err().problem, "sh: python9: not found");
        assert_eq!(facts_of("").unwrap_err().problem, "");
    }

    #[test]
    fn words_stay_words() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
