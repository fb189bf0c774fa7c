//! Finds out what this host is and has.

use crate::claim::{self, HeldName};
use crate::{command, environment, nvidia, procfs, python, reap, shell};
use nix::ifaddrs::getifaddrs;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use wire::probe::{
    Card, Environment, GpuCard, Interpreter, Occupancy, Probe, Probed, Python, SERVER_PORTS,
};
use wire::{Failure, Text};

/// Activating conda takes seconds; what takes longer than this hangs. The tool that asks waits a
/// little longer.
const PYTHON_LIMIT: Duration = Duration::from_secs(50);
/// How much output of a setup and a Python is kept.
const PYTHON_SAYS: usize = 256 << 10;
/// The ports on which torch's rendezvous may listen; its own default is 29500.
const MASTER_PORTS: std::ops::RangeInclusive<u16> = 29500..=29599;

/// Answers the question about this host.
pub fn probe(wanted: &Probe) -> Probed {
    // it may take as long as the Python, and both together longer than anybody waits
    let gpu_cards = GpuCards::look_for();
    let mut probed = Probed {
        cards: cards(),
        cpus: u32::try_from(procfs::usable_cpus().len())
            .ok()
            .filter(|cpus| *cpus > 0),
        numa_cores: procfs::cores_by_node(),
        mem_bytes: procfs::memory_bytes(),
        mem_limit_bytes: memory_limit_bytes(),
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
    if wanted.occupancy {
        probed.occupancy = Some(occupancy(wanted.server_ports));
    }
    match gpu_cards.found() {
        Ok(cards) => probed.gpu_cards = cards,
        Err(failure) => probed.gpu_failure = Some(failure),
    }
    if probed.gpus == 0 {
        probed.gpus = u32::try_from(probed.gpu_cards.len()).unwrap_or(u32::MAX);
    }
    probed
}

/// What nvidia-smi tells of the cards, which it is asked for in a thread of its own.
enum GpuCards {
    /// nvidia-smi is not there.
    None,
    Asked(io::Result<JoinHandle<Result<Vec<GpuCard>, Failure>>>),
}

impl GpuCards {
    fn look_for() -> GpuCards {
        let Some(program) = nvidia::program() else {
            return GpuCards::None;
        };
        let look = move || nvidia::cards::look(&program, nvidia::cards::LIMIT);
        GpuCards::Asked(thread::Builder::new().spawn(look))
    }

    fn found(self) -> Result<Vec<GpuCard>, Failure> {
        match self {
            GpuCards::None => Ok(Vec::new()),
            GpuCards::Asked(Err(error)) => Err(nvidia::cards::failure(&error)),
            // a panic ends this program
            GpuCards::Asked(Ok(thread)) => thread.join().unwrap_or_else(|_| Ok(Vec::new())),
        }
    }
}

fn occupancy(servers: Option<(u16, u16)>) -> Occupancy {
    let (mut jobs, mut ports) = (reap::names(), BTreeSet::new());
    for claimed in claim::all_held() {
        match claimed {
            HeldName::Job(name) => drop(jobs.insert(name)),
            HeldName::Port(port) => drop(ports.insert(port)),
        }
    }
    let sockets = procfs::tcp_sockets();
    ports.extend(
        sockets
            .iter()
            .filter(|one| !one.lingers())
            .map(|one| one.port),
    );
    let of_interest = |port: &u16| {
        SERVER_PORTS.contains(port)
            || servers.is_some_and(|(first, last)| (first..=last).contains(port))
    };
    Occupancy {
        jobs: jobs.into_iter().collect(),
        ports: ports.into_iter().filter(of_interest).collect(),
    }
}

/// The first address of each network interface, which is what SIOCGIFADDR tells DGL. An alias such
/// as `eth0:1` is not an interface.
fn cards() -> Vec<Card> {
    let mut cards: Vec<Card> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let Some(address) = interface
            .address
            .and_then(|address| Some(address.as_sockaddr_in()?.ip()))
        else {
            continue;
        };
        let name = interface.interface_name;
        if !name.contains(':') && !cards.iter().any(|card| card.name == name) {
            cards.push(Card { name, address });
        }
    }
    cards
}

/// The memory that a control group allows, if it is less than the host has.
fn memory_limit_bytes() -> Option<u64> {
    let limit = procfs::cgroup::memory_limit_bytes()?;
    let is_less = procfs::memory_bytes().is_none_or(|all| limit < all);
    is_less.then_some(limit)
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let room = statvfs(folder).ok()?;
    room.blocks_available().checked_mul(room.fragment_size())
}

/// The folder itself or, if it does not exist, the nearest parent that does.
fn nearest_folder(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find(|folder| folder.is_dir());
    there.map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// What the driver counts; below Windows it has no such folder, and nvidia-smi counts.
fn gpus() -> u32 {
    let count =
        fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |entries| entries.flatten().count());
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn most_open_files() -> Option<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    (hard != RLIM_INFINITY).then_some(hard)
}

/// Only a listener prevents torch's rendezvous; the graph servers will listen later.
fn master_port(servers: Option<(u16, u16)>) -> Option<u16> {
    let taken = procfs::listening_ports();
    let of_server = |port: u16| servers.is_some_and(|(first, last)| (first..=last).contains(&port));
    MASTER_PORTS
        .into_iter()
        .find(|port| !of_server(*port) && !taken.contains(port))
}

/// Runs the Python as the job will: after the setup, in the environment.
fn ask_python(wanted: &Probe, environment: Option<&Environment>) -> Result<Interpreter, Failure> {
    let interpreter = match (environment, &wanted.python) {
        (Some(environment), _) => &environment.interpreter,
        (None, Python::Command(word) | Python::Conda(word) | Python::Venv(word)) => word,
    };
    let text = [
        b"exec ",
        &*shell::quoted(interpreter.as_ref()),
        b" -c '",
        python::ASK.as_bytes(),
        b"'",
    ]
    .concat();
    let variables = environment.map(variables).unwrap_or_default();
    let invocation = shell::in_shell(&variables, wanted.setup.as_deref(), &text);
    let mut command = Command::new(&invocation.words[0]);
    command
        .args(&invocation.words[1..])
        .env(python::QUESTION_VARIABLE, python::QUESTION)
        .envs(invocation.env);
    let answer = command::ask(command, PYTHON_LIMIT, PYTHON_SAYS)
        .map_err(|error| Failure::new(error.to_string()))?;
    if answer.status.is_none() {
        return Err(Failure::new(format!(
            "no answer within {} s",
            PYTHON_LIMIT.as_secs()
        )));
    }
    python::facts_of(&answer.text())
        .map(|facts| facts.interpreter)
        .map_err(Failure::new)
}

/// The environment variables that dgl-env sets for the processes of the job.
fn variables(environment: &Environment) -> Vec<(String, Text)> {
    let mut variables = vec![
        (
            "PATH",
            format!("{}/bin:{}", environment.prefix, environment.path),
        ),
        ("DGL_TOOLS_PYTHON", environment.interpreter.clone()),
    ];
    match &environment.conda_env {
        Some(name) => variables.extend([
            ("CONDA_PREFIX", environment.prefix.clone()),
            ("CONDA_DEFAULT_ENV", name.clone()),
        ]),
        None => variables.push(("VIRTUAL_ENV", environment.prefix.clone())),
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Text::from(value.as_str())))
        .collect()
}
