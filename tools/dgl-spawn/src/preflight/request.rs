//! The requests to a host's agent before its processes start.

use record::error::Fault;
use record::python::is_interpreter;
use record::{Command, Host, Process, Role};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use wire::Text;
use wire::preflight::{Check, Claim, Port, PythonQuestion};

/// How many files a server opens besides two sockets for each client: Python's own files, and those
/// of its partition.
const FILES_BESIDE: u64 = 100;

/// What the job claims on the host for as long as it lives.
pub fn claim(host: &Host, processes: &[&Process], private_shm: bool) -> Claim {
    let loads_a_graph = |process: &&&Process| {
        process.role == Role::Server && process.env.contains_key("DGL_CONF_PATH")
    };
    let shared_memory = !private_shm && processes.iter().any(|process| loads_a_graph(&process));
    let mut ports = ports(host, processes);
    if !processes.iter().any(|process| meets_by_torch(process)) {
        ports.retain(|port| port.address.is_some());
    }
    Claim {
        ports,
        shared_memory,
    }
}

/// Whether the process will surely use torch's rendezvous. Every worker gets a port for it, but
/// many are not Python at all (`nvidia-smi` on all hosts, say), and other jobs must not wait for
/// those.
fn meets_by_torch(process: &Process) -> bool {
    let first = || match process.command().ok()? {
        Command::Words(words) => words.first()?.to_str().map(str::to_owned),
        Command::Shell(text) => text.split_whitespace().next().map(str::to_owned),
    };
    match process.role {
        Role::Server => false,
        Role::Trainer => true,
        Role::Worker => first().is_some_and(|word| is_interpreter(&word)),
    }
}

/// The checks of the host, each once.
pub fn checks(host: &Host, processes: &[&Process], private_shm: bool) -> Result<Vec<Check>, Fault> {
    let mut checks: Vec<Check> = Vec::new();
    let servers = || {
        processes
            .iter()
            .filter(|process| process.role == Role::Server)
    };
    let part = servers().next().map(|_| host.id);
    for process in processes {
        checks.extend(files(process, part, private_shm));
    }
    let clients = servers()
        .filter_map(|server| server.env.get("DGL_NUM_CLIENT")?.parse::<u64>().ok())
        .max();
    checks.extend(clients.map(|clients| Check::OpenFiles {
        need: clients.saturating_mul(2).saturating_add(FILES_BESIDE),
    }));
    let ports = ports(host, processes);
    checks.extend((!ports.is_empty()).then_some(Check::Ports { ports }));
    checks.push(Check::Jobs);
    checks.extend((part.is_some() && !private_shm).then_some(Check::SharedMemory));
    checks.extend(private_shm.then_some(Check::PrivateSharedMemory));
    checks.extend(commands(processes)?);
    let mut once: Vec<Check> = Vec::new();
    for check in checks {
        if !once.contains(&check) {
            once.push(check);
        }
    }
    Ok(once)
}

/// How the host listens for the others; `None` if the job does not use DGL's network.
pub fn listen(host: &Host, processes: &[&Process]) -> Option<Check> {
    let of_dgl = processes.iter().any(|process| process.role != Role::Worker);
    let port = processes.iter().find_map(|process| process.port);
    (of_dgl && host.of > 1).then_some(Check::Listen {
        address: host.ip.0,
        port,
    })
}

fn files(process: &Process, part: Option<u32>, private_shm: bool) -> Vec<Check> {
    let folder = || Text::from(process.cwd.as_deref().unwrap_or("."));
    let mut checks = vec![Check::Folder { path: folder() }];
    if let Some(config) = process.env.get("DGL_CONF_PATH") {
        let path = Text::from(config.as_str());
        checks.push(Check::File {
            folder: folder(),
            path: path.clone(),
        });
        checks.push(Check::PartitionConfig {
            folder: folder(),
            path,
            part,
            private_shm,
        });
    }
    if let Some(ip_config) = process.env.get("DGL_IP_CONFIG") {
        let path = Text::from(ip_config.as_str());
        checks.push(Check::File {
            folder: folder(),
            path: path.clone(),
        });
        checks.push(Check::IpConfig {
            folder: folder(),
            path,
        });
    }
    checks
}

/// The ports to be bound on a host: the graph servers' on its own address, torch's rendezvous on
/// any.
pub fn ports(host: &Host, processes: &[&Process]) -> Vec<Port> {
    let own = processes.iter().filter_map(|process| process.port);
    let mut ports: Vec<Port> = own
        .map(|port| Port {
            port,
            address: Some(host.ip.0),
        })
        .collect();
    let clients = processes
        .iter()
        .filter(|process| host.id == 0 && process.role != Role::Server);
    ports.extend(
        clients
            .take(1)
            .filter_map(|process| master_port(process))
            .map(|port| Port {
                port,
                address: None,
            }),
    );
    ports
}

/// The port of torch's rendezvous: trainers have it in their environment, torch's launcher among
/// its arguments.
fn master_port(process: &Process) -> Option<u16> {
    let option = |word: &str| word.strip_prefix("--master_port=")?.parse().ok();
    let argument = || match process.command() {
        Ok(Command::Words(words)) => words
            .iter()
            .filter_map(|word| word.to_str())
            .find_map(option),
        Ok(Command::Shell(text)) => text.split_whitespace().find_map(option),
        Err(_) => None,
    };
    process
        .env
        .get("MASTER_PORT")
        .and_then(|port| port.parse().ok())
        .or_else(argument)
}

/// The checks of the commands, each once.
fn commands(processes: &[&Process]) -> Result<Vec<Check>, Fault> {
    let mut seen = Vec::new();
    let mut checks = Vec::new();
    for (index, process) in (0..).zip(processes) {
        let words: Vec<OsString> = match process.command()? {
            Command::Words(words) => words,
            Command::Shell(text) => text.split_whitespace().map(OsString::from).collect(),
        };
        let Some(first) = words.first() else { continue };
        let key = (
            first.clone(),
            process.setup.clone(),
            process.role == Role::Worker,
        );
        if seen.contains(&key) {
            continue;
        }
        let python = first
            .to_str()
            .is_some_and(is_interpreter)
            .then(|| question(process, &words[1..]));
        // other shell text cannot be checked
        let is_shell_text = process.shell.is_some();
        if python.is_some() || !is_shell_text {
            checks.push(Check::Command {
                process: index,
                python,
            });
        }
        seen.push(key);
    }
    Ok(checks)
}

fn question(process: &Process, arguments: &[OsString]) -> PythonQuestion {
    // the script is the first word that looks like one; a module (-m) has none
    let mut words = arguments
        .iter()
        .map(OsString::as_os_str)
        .take_while(|word| *word != OsStr::new("-c"));
    let script = words.find(|word| word.as_bytes().ends_with(b".py"));
    let modules: &[&str] = if process.role == Role::Worker {
        &[]
    } else {
        &["dgl", "torch"]
    };
    PythonQuestion {
        script: script.map(|script| Text(script.to_owned())),
        modules: modules.iter().map(|module| (*module).to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn host() -> Host {
        Host {
            id: 0,
            of: 2,
            ip: record::IpAddr(std::net::Ipv4Addr::new(10, 0, 0, 1)),
            port: 30050,
            ..Host::default()
        }
    }

    fn process(rest: Value) -> Process {
        let mut process = json!({"id": 0, "of": 2, "host": 0, "ip": "10.0.0.1", "rank": 0});
        rest.as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| process[key] = value.clone());
        serde_json::from_value(process).unwrap()
    }

    fn asked(processes: &[Process]) -> Vec<Value> {
        let checks = checks(&host(), &processes.iter().collect::<Vec<_>>(), false).unwrap();
        checks
            .iter()
            .map(|check| serde_json::to_value(check).unwrap())
            .collect()
    }

    #[test]
    fn each_thing_is_looked_at_once() {
        let rest = json!({"role": "server", "port": 30050, "cwd": "/w", "argv": ["python3", "-u",
            "code/train.py", "--x"],
            "env": {"DGL_CONF_PATH": "d/g.json", "DGL_IP_CONFIG": "ip", "DGL_NUM_CLIENT": "8",
            "MASTER_PORT": "29500"}});
        let server = process(rest);
        let trainer = Process {
            role: Role::Trainer,
            port: None,
            ..server.clone()
        };
        let wanted = [
            json!({"check": "folder", "path": "/w"}),
            json!({"check": "file", "folder": "/w", "path": "d/g.json"}),
            json!({"check": "partition_config", "folder": "/w", "path": "d/g.json", "part": 0}),
            json!({"check": "file", "folder": "/w", "path": "ip"}),
            json!({"check": "ip_config", "folder": "/w", "path": "ip"}),
            json!({"check": "open_files", "need": 116}),
            json!({"check": "ports", "ports": [{"port": 30050, "address": "10.0.0.1"},
                {"port": 29500}]}),
            json!({"check": "jobs"}),
            json!({"check": "shared_memory"}),
            json!({"check": "command", "process": 0, "python": {"script": "code/train.py",
                "modules": ["dgl", "torch"]}}),
        ];
        let processes = [server, trainer];
        assert_eq!(asked(&processes), wanted);
        let all: Vec<&Process> = processes.iter().collect();
        let claimed = claim(&host(), &all, false);
        assert_eq!((claimed.ports.len(), claimed.shared_memory), (2, true));
        assert!(
            !claim(&host(), &all, true).shared_memory
                && !claim(&host(), &all[1..], false).shared_memory
        );
        let listens = Check::Listen {
            address: std::net::Ipv4Addr::new(10, 0, 0, 1),
            port: Some(30050),
        };
        assert_eq!(
            (
                listen(&host(), &all),
                listen(&Host { of: 1, ..host() }, &all)
            ),
            (Some(listens), None)
        );
    }

    #[test]
    fn only_what_is_python_claims_the_rendezvous_of_torch() {
        let worker = |command: Value| {
            process(json!({"role": "worker", "argv": command, "env": {"MASTER_PORT": "29500"}}))
        };
        let table = [
            (worker(json!(["nvidia-smi"])), 0),
            (worker(json!(["/v/bin/python3", "t.py"])), 1),
        ];
        for (worker, ports) in table {
            assert_eq!(
                claim(&host(), &[&worker], false).ports.len(),
                ports,
                "{:?}",
                worker.argv
            );
        }
    }

    #[test]
    fn commands_are_asked_as_they_are_written() {
        let table = [
            (
                json!({"argv": ["run", "x"]}),
                Some(json!({"check": "command", "process": 0})),
            ),
            (
                json!({"argv": ["/v/bin/python3.11", "-m", "pkg"]}),
                Some(json!({"check": "command", "process": 0, "python": {"modules": []}})),
            ),
            (json!({"shell": "sleep 1; x"}), None),
            (
                json!({"shell": "python3 t.py --master_port=29777"}),
                Some(
                    json!({"check": "command", "process": 0, "python": {"script": "t.py",
                        "modules": []}}),
                ),
            ),
        ];
        for (mut rest, wanted) in table {
            rest["role"] = "worker".into();
            let got = asked(&[process(rest.clone())]);
            assert_eq!(
                got.iter().find(|check| check["check"] == "command"),
                wanted.as_ref(),
                "{rest}"
            );
            let has_port = got.contains(&json!({"check": "ports", "ports": [{"port": 29777}]}));
            assert_eq!(has_port, rest.to_string().contains("master_port"), "{rest}");
        }
    }
}
