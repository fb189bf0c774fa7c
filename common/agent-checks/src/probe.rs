//! Collects the facts about this host.

use crate::claim::{self, HeldName};
use crate::environment::{self, Environment};
use crate::python::{self, PythonFacts};
use agent_supervise::shell::ASK_LIMIT;
use host::nvidia::cards::Listed;
use host::{job_processes, netlink, nvidia, open_files, procfs};
use nix::ifaddrs::getifaddrs;
use record::python::activation;
use record::{Facts, PROGRAM_PORTS};
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Instant;
use transfer::room::free_bytes;
use wire::probe::{Interface, Occupancy, Probe, Probed, Python, SERVER_PORTS};
use wire::{Failure, Text};

/// How many free ports to report besides the port of the rendezvous. Each program of a job may
/// use some.
const MORE_PORTS: usize = 16;

pub fn probe(request: &Probe) -> Probed {
    let is_server_port = |port: &u16| {
        let servers = request.server_ports;
        servers.is_some_and(|(first, last)| (first..=last).contains(port))
    };
    thread::scope(|scope| {
        // at the same time as the Python, because both in turn may take longer than the tool waits
        let gpu_cards = thread::Builder::new().spawn_scoped(scope, gpu_cards);
        let mut probed = Probed {
            facts: facts(request.workspace.as_deref()),
            interfaces: interfaces(),
            ephemeral_ports: procfs::ephemeral_ports(),
            ..Probed::default()
        };
        // only a listener prevents torch's rendezvous, but graph servers will listen later
        let taken: BTreeSet<u16> = netlink::listening_ports().into_values().collect();
        let is_free = |port: &u16| !is_server_port(port) && !taken.contains(port);
        let mut free = PROGRAM_PORTS.filter(is_free);
        probed.facts.master_port = free.next();
        probed.facts.free_ports = free.take(MORE_PORTS).collect();
        find_python(request, &mut probed);
        if request.occupancy {
            probed.occupancy = occupancy(is_server_port);
        }
        let gpu_cards = gpu_cards
            .map_err(|error| nvidia::cards::failure(&error))
            // a panic ends this program
            .and_then(|thread| thread.join().unwrap_or(Ok(None)));
        let installed = fs::read_dir("/proc/driver/nvidia/gpus");
        let installed = installed.map_or(0, |entries| entries.flatten().count());
        let gpus = match gpu_cards {
            Ok(Some(listed)) => {
                // in WSL the driver has no such directory
                let unlisted = installed.saturating_sub(listed.listed);
                probed.unlisted_gpus = u32::try_from(unlisted).ok();
                probed.facts.gpu_cards = listed.cards;
                listed.usable
            }
            Ok(None) => installed,
            Err(failure) => {
                probed.gpu_failure = Some(failure);
                installed
            }
        };
        probed.facts.gpus = u32::try_from(gpus).ok();
        probed
    })
}

/// None without nvidia-smi.
fn gpu_cards() -> Result<Option<Listed>, Failure> {
    let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
    nvidia::program()
        .map(|program| nvidia::cards::query(&program, nvidia::LIMIT, visible.as_deref()))
        .transpose()
}

/// The facts from the kernel and the environment of this process.
fn facts(workspace: Option<&str>) -> Facts {
    let mem_bytes = procfs::memory_bytes();
    let cpus = procfs::usable_cpus().len() as u64;
    let cpus = procfs::cgroup::cpu_limit().map_or(cpus, |limit| limit.min(cpus));
    let cpus = u32::try_from(cpus).ok();
    let home = env::var_os("HOME");
    let folder = workspace.map(|workspace| {
        let workspace = host::home::at_home(workspace);
        let existing = workspace.ancestors().find(|folder| folder.is_dir());
        let existing = existing.unwrap_or(Path::new("."));
        fs::canonicalize(existing).unwrap_or_else(|_| existing.to_owned())
    });
    Facts {
        cpus: cpus.filter(|cpus| *cpus > 0),
        numa_cores: procfs::cores_by_node(),
        mem_bytes,
        mem_limit_bytes: procfs::cgroup::memory_limit_bytes()
            .filter(|limit| mem_bytes.is_none_or(|installed| *limit < installed)),
        shm_free_bytes: free_bytes(Path::new("/dev/shm")),
        free_bytes: folder.as_deref().and_then(free_bytes),
        workspace_fs: folder.and_then(|folder| procfs::file_system(&folder.to_string_lossy())),
        nofile: open_files::hard_limit(),
        home: home.map(|home| home.to_string_lossy().into_owned()),
        ..Facts::default()
    }
}

fn find_python(request: &Probe, probed: &mut Probed) {
    let environment = match environment::find(&request.python) {
        Ok(environment) => environment,
        Err(failure) => {
            probed.environment_failure = Some(failure);
            return;
        }
    };
    let facts = &mut probed.facts;
    let path = env::var("PATH").unwrap_or_default();
    let (interpreter, variables) = match (&environment, &request.python) {
        (Some(environment), _) => (&environment.interpreter, variables(environment, &path)),
        (None, Python::Command(word) | Python::Conda(word) | Python::Venv(word)) => {
            (word, Vec::new())
        }
    };
    match ask_python(interpreter.as_ref(), &variables, request.setup.as_deref()) {
        Ok(python) => {
            (facts.python, facts.python_path) = (python.version, python.executable);
            (facts.dgl, facts.torch) = (python.dgl, python.torch);
        }
        Err(why) => {
            let why = Some(why).filter(|why| !why.is_empty());
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            let problem = format!("{interpreter} does not run{why}");
            probed.python_failure = Some(Failure::new(problem));
        }
    }
    if let Some(environment) = environment {
        facts.prefix = Some(environment.prefix);
        facts.conda_env = environment.conda_env;
        facts.path = Some(path);
    }
}

/// Runs it as the job will, after the setup and in the environment.
fn ask_python(
    interpreter: &OsStr,
    variables: &[(String, Text)],
    setup: Option<&str>,
) -> Result<PythonFacts, String> {
    let invocation = python::asked_in_shell(interpreter, variables, setup);
    let until = Instant::now() + ASK_LIMIT;
    python::ask(invocation, Path::new("."), None, until)
}

/// Those that dgl-env sets for the processes of the job.
fn variables(environment: &Environment, path: &str) -> Vec<(String, Text)> {
    let Environment {
        prefix,
        interpreter,
        conda_env,
    } = environment;
    let interpreter = ("DGL_TOOLS_PYTHON", interpreter.clone());
    activation(prefix, conda_env.as_deref(), path)
        .into_iter()
        .chain([interpreter])
        .map(|(name, value)| (name.to_owned(), Text::from(value.as_str())))
        .collect()
}

fn occupancy(is_server_port: impl Fn(&u16) -> bool) -> Occupancy {
    let (mut jobs, mut ports) = (job_processes::names(), BTreeSet::new());
    for claimed in claim::all_held() {
        match claimed {
            HeldName::Job(name) => drop(jobs.insert(name)),
            HeldName::Port(port) => drop(ports.insert(port)),
        }
    }
    let sockets = procfs::tcp_sockets().into_iter();
    ports.extend(
        sockets
            .filter(|socket| !socket.lingers())
            .map(|socket| socket.port),
    );
    ports.retain(|port| SERVER_PORTS.contains(port) || is_server_port(port));
    Occupancy {
        jobs: jobs.into_iter().collect(),
        ports,
    }
}

/// The first address of each network interface, as DGL gets it from SIOCGIFADDR. An alias such as
/// `eth0:1` is no interface.
fn interfaces() -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let address = interface.address;
        let address = address.and_then(|address| Some(address.as_sockaddr_in()?.ip()));
        let name = interface.interface_name;
        if let Some(address) = address
            && !name.contains(':')
            && !found.iter().any(|known| known.name == name)
        {
            found.push(Interface { name, address });
        }
    }
    found
}
