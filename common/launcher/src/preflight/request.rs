//! The requests to a host's agent before its processes start.

use record::error::Fault;
use record::{Command, Host, Process, Role};
use wire::Text;
use wire::preflight::{Check, Claim, Module, Port, PythonQuestion, Script};

/// How many files a server opens besides two sockets for each client: Python's own files, and those
/// of its partition.
const FILES_BESIDE: u64 = 100;

/// The requests for one host.
pub struct HostRequests {
    /// What the job claims on the host for as long as it lives.
    pub claim: Claim,
    pub checks: Vec<Check>,
    /// How the host listens for the others; `None` if no process of it meets those of others.
    pub listen: Option<Check>,
    /// Whether it runs more than plain processes, which must reach other hosts only if their script
    /// uses torch.
    pub runs_dgl: bool,
}

impl HostRequests {
    /// `examines` is whether the host is examined for more than claims of other jobs.
    pub fn new(
        host: &Host,
        processes: &[&Process],
        private_shm: bool,
        examines: bool,
    ) -> Result<HostRequests, Fault> {
        let is_plain = |process: &&Process| !process.role.is_dgl();
        Ok(HostRequests {
            claim: claim(host, processes, private_shm),
            checks: match examines {
                true => checks(host, processes, private_shm)?,
                // two jobs of one name could not be told apart
                false => [Check::Jobs]
                    .into_iter()
                    .chain(private_shm.then_some(Check::PrivateSharedMemory))
                    .collect(),
            },
            listen: listen(host, processes).filter(|_| examines),
            runs_dgl: !processes.iter().all(is_plain),
        })
    }
}

fn claim(host: &Host, processes: &[&Process], private_shm: bool) -> Claim {
    let loads_a_graph = |process: &&Process| {
        process.role == Role::Server && process.env.contains_key("DGL_CONF_PATH")
    };
    Claim {
        ports: ports(host, processes),
        shared_memory: !private_shm && processes.iter().any(loads_a_graph),
    }
}

/// Whether the process is one of DGL's, or may use torch. Many workers are not Python at all
/// (`nvidia-smi` on all hosts, say).
fn meets_others(process: &Process) -> bool {
    process.role.is_dgl() || process.python.is_some()
}

/// The checks of the host, each once.
fn checks(host: &Host, processes: &[&Process], private_shm: bool) -> Result<Vec<Check>, Fault> {
    let mut checks: Vec<Check> = Vec::new();
    let servers = || {
        processes
            .iter()
            .filter(|process| process.role == Role::Server)
    };
    let part = servers().next().map(|_| host.id);
    for process in processes {
        checks.extend(files(process, part, private_shm));
        checks.extend(script(process, &process.command()?).map(|path| {
            Check::Script(Script {
                program: process.role,
                folder: folder(process),
                path: path.into(),
            })
        }));
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
    checks.push(Check::ArgumentSizes);
    checks.extend(commands(processes)?);
    let mut once: Vec<Check> = Vec::new();
    for check in checks {
        if !once.contains(&check) {
            once.push(check);
        }
    }
    Ok(once)
}

fn listen(host: &Host, processes: &[&Process]) -> Option<Check> {
    let meets = processes.iter().any(|process| meets_others(process));
    let port = ports(host, processes).first().map(|port| port.port);
    (meets && host.of > 1).then_some(Check::Listen {
        address: host.ip.0,
        port,
    })
}

fn folder(process: &Process) -> Text {
    Text::from(process.cwd.as_deref().unwrap_or("."))
}

fn files(process: &Process, part: Option<u32>, private_shm: bool) -> Vec<Check> {
    let folder = || folder(process);
    let path_in = |variable: &str| Some(Text::from(process.env.get(variable)?.as_str()));
    let mut checks = vec![Check::Folder { path: folder() }];
    let mut push_file = |path: Text, of_kind: Check| {
        let folder = folder();
        checks.extend([Check::File { folder, path }, of_kind]);
    };
    if let Some(path) = path_in("DGL_CONF_PATH") {
        let config = Check::PartitionConfig {
            folder: folder(),
            path: path.clone(),
            part,
            private_shm,
        };
        push_file(path, config);
    }
    if let Some(path) = path_in("DGL_IP_CONFIG") {
        let ip_config = Check::IpConfig {
            folder: folder(),
            path: path.clone(),
        };
        push_file(path, ip_config);
    }
    checks
}

/// The ports to be bound on a host: the graph servers' on its own address, those of programs,
/// torch's rendezvous among them, on any. Every worker gets a port for it, but other jobs must not
/// wait for one that is not used.
fn ports(host: &Host, processes: &[&Process]) -> Vec<Port> {
    let servers = processes.iter().filter_map(|process| process.port);
    let servers = servers.map(|port| Port {
        port,
        address: Some(host.ip.0),
    });
    // each program's first process listens for the others
    let leads = |process: &&&Process| process.role != Role::Server && process.rank == 0;
    let of_program = |process: &&Process| {
        let rendezvous = process.master_port.filter(|_| meets_others(process));
        rendezvous
            .into_iter()
            .chain(process.ports.values().copied())
            .collect::<Vec<_>>()
    };
    let of_programs = processes.iter().filter(leads).flat_map(of_program);
    let of_programs = of_programs.map(|port| Port {
        port,
        address: None,
    });
    servers.chain(of_programs).collect()
}

/// The checks of the commands, each once.
fn commands(processes: &[&Process]) -> Result<Vec<Check>, Fault> {
    let mut seen = Vec::new();
    let mut checks = Vec::new();
    for (index, process) in (0..).zip(processes) {
        let command = process.command()?;
        let python = question(process, &command);
        let first = match &command {
            Command::Words(words) => words.first().cloned(),
            // of other shell text only the shell can be checked
            Command::Shell(_) => None,
        };
        let key = (first, python.clone(), process.setup.clone());
        if !seen.contains(&key) {
            checks.push(Check::Command {
                process: index,
                python,
            });
            seen.push(key);
        }
    }
    Ok(checks)
}

/// The question to the Python of a process.
fn question(process: &Process, command: &Command) -> Option<PythonQuestion> {
    let interpreter = process.python.as_deref()?;
    let begins = match command {
        Command::Words(words) => words.first()? == interpreter,
        Command::Shell(_) => true,
    };
    let modules = match process.role.is_dgl() {
        false => Vec::new(),
        true => Module::ALL.to_vec(),
    };
    (begins && names(command, interpreter)).then(|| PythonQuestion {
        interpreter: interpreter.into(),
        script: script(process, command).map(Text::from),
        modules,
    })
}

/// The script that a process runs.
fn script<'a>(process: &'a Process, command: &Command) -> Option<&'a str> {
    let script = process.script.as_deref()?;
    names(command, script).then_some(script)
}

/// Whether the command has the interpreter or script that dgl-env wrote down. Otherwise it was
/// edited since.
fn names(command: &Command, word: &str) -> bool {
    match command {
        Command::Words(words) => words.iter().any(|other| other == word),
        Command::Shell(text) => text.contains(word),
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

    fn process(rest: &str) -> Process {
        let mut process = json!({"id": 0, "of": 2, "host": 0, "ip": "10.0.0.1", "rank": 0,
            "role": "worker"});
        let rest: serde_json::Map<String, Value> = serde_json::from_str(rest).unwrap();
        process.as_object_mut().unwrap().extend(rest);
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
        let server = process(
            r#"{"role": "server", "port": 30050, "cwd": "/w",
            "argv": ["python3", "-u", "code/train.py", "--x"],
            "env": {"DGL_CONF_PATH": "d/g.json", "DGL_IP_CONFIG": "ip", "DGL_NUM_CLIENT": "8",
            "MASTER_PORT": "29500"}, "python": "python3", "script": "code/train.py"}"#,
        );
        let trainer = Process {
            role: Role::Trainer,
            port: None,
            master_port: Some(29500),
            ..server.clone()
        };
        let wanted = r#"[
            {"check": "folder", "path": "/w"},
            {"check": "file", "folder": "/w", "path": "d/g.json"},
            {"check": "partition_config", "folder": "/w", "path": "d/g.json", "part": 0},
            {"check": "file", "folder": "/w", "path": "ip"},
            {"check": "ip_config", "folder": "/w", "path": "ip"},
            {"check": "script", "program": "server", "folder": "/w", "path": "code/train.py"},
            {"check": "script", "program": "trainer", "folder": "/w", "path": "code/train.py"},
            {"check": "open_files", "need": 116},
            {"check": "ports", "ports": [{"port": 30050, "address": "10.0.0.1"}, {"port": 29500}]},
            {"check": "jobs"},
            {"check": "shared_memory"},
            {"check": "argument_sizes"},
            {"check": "command", "process": 0, "python":
                {"interpreter": "python3", "script": "code/train.py", "modules": ["dgl", "torch"]}}
        ]"#;
        let processes = [server, trainer];
        let wanted: Vec<Value> = serde_json::from_str(wanted).unwrap();
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
    fn workers_are_asked_what_their_records_say() {
        let torch = r#"{"interpreter": "python3", "script": "t.py", "modules": []}"#;
        let table = [
            // what is not Python needs no port and no other host
            (r#"{"argv": ["run", "x"]}"#, "null", false),
            (r#"{"shell": "sleep 1; x"}"#, "null", false),
            (
                r#"{"argv": ["python3", "t.py"], "python": "python3", "script": "t.py"}"#,
                torch,
                true,
            ),
            (
                r#"{"shell": "python3 t.py", "python": "python3", "script": "t.py"}"#,
                torch,
                true,
            ),
            (
                r#"{"argv": ["/v/python3", "-m", "torch"], "python": "/v/python3"}"#,
                r#"{"interpreter": "/v/python3", "modules": []}"#,
                true,
            ),
            // the command was edited since
            (
                r#"{"argv": ["run", "x"], "python": "python3", "script": "t.py"}"#,
                "null",
                true,
            ),
        ];
        for (rest, python, meets) in table {
            let process = Process {
                master_port: Some(29777),
                ..process(rest)
            };
            let python: Value = serde_json::from_str(python).unwrap();
            let got = asked(std::slice::from_ref(&process));
            let find = |name: &str| got.iter().find(|check| check["check"] == name);
            assert_eq!(
                find("command").map(|check| &check["python"]),
                Some(&python),
                "{rest}"
            );
            let has_script = python["script"] == "t.py";
            assert_eq!(find("script").is_some(), has_script, "{rest}");
            let port = json!({"check": "ports", "ports": [{"port": 29777}]});
            let claimed = claim(&host(), &[&process], false).ports.len();
            assert_eq!(
                (
                    got.contains(&port),
                    claimed,
                    listen(&host(), &[&process]).is_some()
                ),
                (meets, usize::from(meets), meets),
                "{rest}"
            );
        }
    }
}
