//! The needs of a job's processes on this host, by their records.

use agent::job::HostProcess;
use agent::notes::{Claim, Port};
use record::{Command, Role};
use wire::job::Job;

/// Files that a server opens besides two sockets for each client: those of Python and of its
/// partition.
const FILES_BESIDE: u64 = 100;

pub fn claim(job: &Job, processes: &[HostProcess]) -> Claim {
    let loads_a_graph =
        |server: &HostProcess| is_server(server) && server.variable("DGL_CONF_PATH").is_some();
    Claim {
        ports: ports(job, processes),
        shared_memory: !job.private_shm && processes.iter().any(loads_a_graph),
    }
}

pub fn is_server(process: &HostProcess) -> bool {
    process.record.role == Role::Server
}

/// Whether the process belongs to DGL or may use torch. Some workers run no Python, such as
/// `nvidia-smi` on all hosts.
pub fn meets_others(process: &HostProcess) -> bool {
    process.record.role.is_dgl() || process.record.python.is_some()
}

/// The ports that will be bound here: those of graph servers on the host's address, and those of
/// programs, with torch's rendezvous, on any address. Every worker has a port for the rendezvous,
/// but other jobs must not wait for unused ones.
pub fn ports(job: &Job, processes: &[HostProcess]) -> Vec<Port> {
    let servers = processes.iter().filter_map(|process| process.record.port);
    let servers = servers.map(|port| Port {
        port,
        address: Some(job.address),
    });
    // the first process of each program listens for the others
    let leads = |process: &&HostProcess| !is_server(process) && process.record.rank == 0;
    let of_program = |process: &HostProcess| {
        let rendezvous = process.record.master_port;
        let rendezvous = rendezvous.filter(|_| meets_others(process));
        let named = process.record.ports.values().copied();
        rendezvous.into_iter().chain(named).collect::<Vec<_>>()
    };
    let of_programs = processes.iter().filter(leads).flat_map(of_program);
    let of_programs = of_programs.map(|port| Port {
        port,
        address: None,
    });
    servers.chain(of_programs).collect()
}

/// How many files a graph server must be able to open; `None` if there is none.
pub fn open_files(processes: &[HostProcess]) -> Option<u64> {
    let clients = |server: &HostProcess| -> Option<u64> {
        server.variable("DGL_NUM_CLIENT")?.to_str()?.parse().ok()
    };
    let servers = processes.iter().filter(|process| is_server(process));
    let clients = servers.filter_map(clients).max()?;
    Some(clients.saturating_mul(2).saturating_add(FILES_BESIDE))
}

pub fn script(process: &HostProcess) -> Option<&str> {
    let script = process.record.script.as_deref()?;
    names(&process.command, script).then_some(script)
}

/// Whether the command still has the interpreter or script that dgl-env recorded.
pub fn names(command: &Command, word: &str) -> bool {
    match command {
        Command::Words(words) => words.iter().any(|other| other == word),
        Command::Shell(text) => text.contains(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Process;
    use serde_json::{Value, json};
    use std::net::Ipv4Addr;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn job(private_shm: bool) -> Job {
        Job {
            address: ADDRESS,
            hosts: 2,
            private_shm,
            ..crate::tested_job("try7")
        }
    }

    fn process(rest: &str) -> HostProcess {
        let mut process = json!({"id": 0, "of": 2, "host": 0, "ip": "10.0.0.1", "rank": 0,
            "role": "worker"});
        let rest: serde_json::Map<String, Value> = serde_json::from_str(rest).unwrap();
        process.as_object_mut().unwrap().extend(rest);
        let record: Process = serde_json::from_value(process).unwrap();
        HostProcess::new(0, record).unwrap()
    }

    #[test]
    fn servers_and_trainers_of_dgl() {
        let server = process(
            r#"{"role": "server", "port": 30050, "argv": ["python3", "-u", "code/train.py"],
            "env": {"DGL_CONF_PATH": "d/g.json", "DGL_NUM_CLIENT": "8", "MASTER_PORT": "29500"},
            "python": "python3", "script": "code/train.py"}"#,
        );
        let trainer = Process {
            role: Role::Trainer,
            port: None,
            master_port: Some(29500),
            ..server.record.clone()
        };
        let processes = [server, HostProcess::new(1, trainer).unwrap()];
        let port = |port: u16, address: Option<Ipv4Addr>| Port { port, address };
        let wanted = [port(30050, Some(ADDRESS)), port(29500, None)];
        assert_eq!(ports(&job(false), &processes), wanted);
        let shares = |private_shm: bool, processes: &[HostProcess]| {
            claim(&job(private_shm), processes).shared_memory
        };
        let trainers = &processes[1..];
        assert!(shares(false, &processes) && !shares(true, &processes) && !shares(false, trainers));
        assert_eq!(
            (open_files(&processes), open_files(trainers)),
            (Some(116), None)
        );
    }

    #[test]
    fn workers_need_what_their_records_say() {
        let table = [
            // a program that is not Python needs no port and no other host
            (r#"{"argv": ["run", "x"]}"#, None, false),
            (r#"{"shell": "sleep 1; x"}"#, None, false),
            (
                r#"{"argv": ["python3", "t.py"], "python": "python3", "script": "t.py"}"#,
                Some("t.py"),
                true,
            ),
            (
                r#"{"shell": "python3 t.py", "python": "python3", "script": "t.py"}"#,
                Some("t.py"),
                true,
            ),
            (
                r#"{"argv": ["/v/python3", "-m", "torch"], "python": "/v/python3"}"#,
                None,
                true,
            ),
            // the command was edited
            (
                r#"{"argv": ["run", "x"], "python": "python3", "script": "t.py"}"#,
                None,
                true,
            ),
        ];
        for (rest, expected, meets) in table {
            let mut process = process(rest);
            process.record.master_port = Some(29777);
            let ports = ports(&job(false), std::slice::from_ref(&process)).len();
            assert_eq!(
                (script(&process), meets_others(&process), ports),
                (expected, meets, usize::from(meets)),
                "{rest}"
            );
        }
    }
}
