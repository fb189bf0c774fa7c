//! The processes of a job. The environment is that of DGL's launch.py; what of it each version of DGL reads, dgl-env(1) says.

use crate::args::{Args, Launcher, RoleArg};
use common::error::{Fault, Report};
use common::quote;
use common::record::{Graph, Host, Process, Role};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where torch's rendezvous listens when nothing says otherwise; torchrun's own default.
const MASTER_PORT: u16 = 29500;

/// What counts or numbers processes, or says who they are: another value than ours makes a job that hangs.
const OURS: [&str; 17] = [
    "DGL_ROLE",
    "DGL_SERVER_ID",
    "DGL_DIST_MODE",
    "DGL_NUM_CLIENT",
    "DGL_NUM_SERVER",
    "DGL_NUM_SAMPLER",
    "DGL_CONF_PATH",
    "DGL_IP_CONFIG",
    "DGL_GROUP_ID",
    "DGL_TOOLS_JOB",
    "DGL_TOOLS_TOKEN",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "DGL_KEEP_ALIVE",
];

/// The user's command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserCommand {
    /// Exec'd as they are.
    Words(Vec<OsString>),
    /// For the user's shell.
    Shell(String),
}

/// What the plan needs to know of the machine it is made on.
#[derive(Default)]
pub struct Here {
    /// Its processors.
    pub cpus: u32,
    /// Its own OMP_NUM_THREADS, which launch.py hands on.
    pub omp_num_threads: Option<OsString>,
    /// Its own PYTHONPATH, which launch.py hands on.
    pub pythonpath: Option<OsString>,
}

/// A job.
pub struct Plan {
    hosts: Vec<Host>,
    servers: bool,
    trainers: bool,
    workers: bool,
    num_trainers: u32,
    num_servers: u32,
    num_samplers: u32,
    workspace: Option<String>,
    part_config: Option<String>,
    ip_config: String,
    num_server_threads: u32,
    num_omp_threads: Option<u32>,
    graph_format: String,
    group_id: u32,
    launcher: Launcher,
    launcher_args: Vec<OsString>,
    local_rank_arg: bool,
    master_port: u16,
    setup: Option<String>,
    command: UserCommand,
    env: Vec<(String, OsString)>,
    here: Here,
}

/// The variables of `--env K=V` and `--env K`; the last one of a name wins.
pub fn user_env(given: &[OsString], lookup: impl Fn(&str) -> Option<OsString>) -> Result<Vec<(String, OsString)>, Report> {
    let mut report = Report::default();
    let mut env = Vec::new();
    for entry in given {
        let bytes = entry.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let name = String::from_utf8_lossy(&bytes[..equals.unwrap_or(bytes.len())]).into_owned();
        let plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
        if name.is_empty() || !plain {
            report.push(
                Fault::usage("--env", format!("{name:?} is not a variable's name")).fix("write --env NAME=VALUE, once for each variable"),
            );
        } else if OURS.contains(&name.as_str()) {
            report.push(Fault::usage(
                "--env",
                format!("{name} cannot be set: another value than the plan's makes a job that hangs or takes one process for another"),
            ));
        } else if let Some(at) = equals {
            env.push((name, OsString::from_vec(bytes[at + 1..].to_vec())));
        } else if let Some(value) = lookup(&name) {
            env.push((name, value));
        } else {
            report.push(Fault::usage("--env", format!("{name} is not set here")).fix(format!("write --env {name}=VALUE")));
        }
    }
    report.check()?;
    Ok(env)
}

impl Plan {
    /// Checks all that can be seen before a process is worked out.
    pub fn new(
        args: &Args,
        command: UserCommand,
        hosts: Vec<Host>,
        graph: Option<Graph>,
        env: Vec<(String, OsString)>,
        here: Here,
    ) -> Result<Plan, Report> {
        let mut report = Report::default();
        let wants = |role| args.role.contains(&role);
        let (servers, trainers, workers) = match args.role.is_empty() {
            true => (true, true, false),
            false => (wants(RoleArg::Server), wants(RoleArg::Trainer), wants(RoleArg::Worker)),
        };
        if workers && (servers || trainers) {
            report.push(Fault::usage("--role", "worker does not go together with server and trainer"));
        }
        if (servers || trainers) && args.num_trainers.is_none() {
            report.push(Fault::usage("--num-trainers", "is missing: servers too must know how many clients will come"));
        }
        let of_graph = |field: fn(&Graph) -> &String| graph.as_ref().map(|graph| Path::new(field(graph)));
        let mut agree = |option: &str, given: Option<&Path>, stream: Option<&Path>| {
            report.keep(agreed(option, given, stream).map_err(Report::from)).flatten()
        };
        let workspace = agree("--workspace", args.workspace.as_deref(), of_graph(|graph| &graph.workspace));
        let part_config = agree("--part-config", args.part_config.as_deref(), of_graph(|graph| &graph.part_config));
        let ip_config = agree("--ip-config", args.ip_config.as_deref(), of_graph(|graph| &graph.ip_config));
        if servers || trainers {
            for (option, value) in [("--workspace", &workspace), ("--part-config", &part_config)] {
                if value.is_none() && report.0.is_empty() {
                    let fault = Fault::usage(option, "is missing, and the stream has no graph record");
                    report.push(fault.fix(format!("give {option}, or put part-map --part-config … before dgl-env")));
                }
            }
        }
        if let Some(graph) = graph.as_ref().filter(|graph| graph.num_parts as usize != hosts.len()) {
            let problem = format!("{} partitions for {} hosts; DGL needs as many hosts as partitions", graph.num_parts, hosts.len());
            report.push(Fault::data("stdin: graph record", problem).fix("make the stream anew, from ipconf-check on"));
        }
        for host in hosts.iter().filter(|host| u32::from(host.port) + u32::from(args.num_servers) - 1 > 65535) {
            let fault = Fault::data(host.place(), format!("{} servers from port {} on go beyond 65535", args.num_servers, host.port));
            report.push(fault.fix("take a lower port in ip_config"));
        }
        if workspace.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
            report.push(Fault::usage("--workspace", "is not an absolute path").fix("it is the same folder on every host: begin it with /"));
        }
        if args.launcher != Launcher::Direct && trainers && report.0.is_empty() {
            report.keep(under_torch(&command, &[]).map_err(Report::from));
        }
        if args.launcher == Launcher::Direct && !args.launcher_arg.is_empty() {
            report.push(Fault::usage("--launcher-arg", "is for --launcher torchrun and torch-launch"));
        }
        report.check()?;
        let master_port = args.master_port.or_else(|| hosts.first().and_then(|host| host.facts.master_port)).unwrap_or(MASTER_PORT);
        Ok(Plan {
            servers,
            trainers,
            workers,
            num_trainers: args.num_trainers.unwrap_or(1),
            num_servers: u32::from(args.num_servers),
            num_samplers: args.num_samplers,
            workspace,
            part_config,
            ip_config: ip_config.unwrap_or_else(|| "ip_config.txt".to_owned()),
            num_server_threads: args.num_server_threads,
            num_omp_threads: args.num_omp_threads,
            graph_format: args.graph_format.clone(),
            group_id: args.group_id,
            launcher: args.launcher,
            launcher_args: args.launcher_arg.clone(),
            local_rank_arg: args.local_rank_arg,
            master_port,
            setup: args.setup.clone(),
            command,
            env,
            here,
            hosts,
        })
    }

    /// How many hosts the job has.
    pub fn num_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Where the config would be on this machine.
    pub fn config_here(&self) -> Option<PathBuf> {
        Some(Path::new(self.workspace.as_ref()?).join(self.part_config.as_ref()?))
    }

    /// What the user should know, though it is no error.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let set = |name: &str| self.env.iter().any(|(other, _)| other == name);
        let unknown = |known: fn(&Host) -> bool| !self.hosts.iter().all(known);
        let counts = self.trainers && self.launcher_omp().is_none() && self.num_omp_threads.is_none() && !set("OMP_NUM_THREADS");
        if counts && unknown(|host| host.facts.cpus.is_some()) {
            let threads = self.omp_threads(self.here.cpus);
            warnings.push(format!("OMP_NUM_THREADS={threads} comes from this machine's {} processors; put host-probe before dgl-env to take the hosts', or say --num-omp-threads", self.here.cpus));
        }
        if unknown(|host| host.facts.iface.is_some()) && self.hosts.len() > 1 && !set("GLOO_SOCKET_IFNAME") {
            warnings.push("gloo may choose the wrong network card; put host-probe before dgl-env to name the right one".to_owned());
        }
        warnings
    }

    /// Every process, one at a time: a job of 10,000 hosts does not fit into memory as records.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let if_wanted = |wanted: bool| if wanted { self.hosts.as_slice() } else { &[] };
        let per_host = if self.launcher == Launcher::Direct { self.num_trainers } else { 1 };
        let servers = if_wanted(self.servers).iter().flat_map(move |host| (0..self.num_servers).map(move |s| self.server(host, s)));
        let trainers = if_wanted(self.trainers).iter().flat_map(move |host| (0..per_host).map(move |t| self.trainer(host, t)));
        let workers = if_wanted(self.workers).iter().map(|host| self.worker(host));
        let each = u32::from(self.servers) * self.num_servers + u32::from(self.trainers) * per_host + u32::from(self.workers);
        let of = self.hosts.len() as u32 * each;
        servers.chain(trainers).chain(workers).zip(0..).map(move |(process, id)| Process { id, of, ..process })
    }

    fn server(&self, host: &Host, s: u32) -> Process {
        let mut process = self.process(host, Role::Server, host.id * self.num_servers + s);
        process.port = u16::try_from(u32::from(host.port) + s).ok();
        self.common_env(&mut process);
        set(&mut process, "DGL_ROLE", "server");
        let rank = process.rank;
        set(&mut process, "DGL_SERVER_ID", rank);
        set(&mut process, "OMP_NUM_THREADS", self.num_server_threads);
        self.finish(process, host, self.command.clone())
    }

    fn trainer(&self, host: &Host, t: u32) -> Process {
        let direct = self.launcher == Launcher::Direct;
        let mut process = self.process(host, Role::Trainer, if direct { host.id * self.num_trainers + t } else { host.id });
        self.common_env(&mut process);
        set(&mut process, "DGL_ROLE", "client");
        set(&mut process, "DGL_DIST_MODE", "distributed");
        set(&mut process, "DGL_GROUP_ID", self.group_id);
        let omp =
            self.launcher_omp().cloned().unwrap_or_else(|| self.omp_threads(host.facts.cpus.unwrap_or(self.here.cpus)).to_string().into());
        process.set_env("OMP_NUM_THREADS", &omp);
        if direct {
            set(&mut process, "RANK", host.id * self.num_trainers + t);
            set(&mut process, "LOCAL_RANK", t);
            set(&mut process, "WORLD_SIZE", self.hosts.len() as u32 * self.num_trainers);
            set(&mut process, "LOCAL_WORLD_SIZE", self.num_trainers);
            set(&mut process, "GROUP_RANK", host.id);
            self.master_env(&mut process);
        } else {
            process.nproc = Some(self.num_trainers);
        }
        let command = match direct {
            true if self.local_rank_arg => with_local_rank(&self.command, t),
            true => self.command.clone(),
            // checked when the plan was made
            false => under_torch(&self.command, &self.torch_words(host.id)).unwrap_or_else(|_| self.command.clone()),
        };
        self.finish(process, host, command)
    }

    fn worker(&self, host: &Host) -> Process {
        let mut process = self.process(host, Role::Worker, host.id);
        set(&mut process, "RANK", host.id);
        set(&mut process, "WORLD_SIZE", self.hosts.len());
        self.master_env(&mut process);
        self.finish(process, host, self.command.clone())
    }

    fn process(&self, host: &Host, role: Role, rank: u32) -> Process {
        Process {
            id: 0,
            of: 0,
            host: host.id,
            ip: host.ip,
            role,
            rank,
            nproc: None,
            port: None,
            cwd: self.workspace.clone(),
            env: Default::default(),
            env_b64: Default::default(),
            setup: self.setup.clone(),
            argv: None,
            argv_b64: None,
            shell: None,
        }
    }

    fn common_env(&self, process: &mut Process) {
        let trainers = self.hosts.len() as u32 * self.num_trainers;
        set(process, "DGL_NUM_CLIENT", trainers * (1 + self.num_samplers));
        set(process, "DGL_NUM_SERVER", self.num_servers);
        set(process, "DGL_NUM_SAMPLER", self.num_samplers);
        set(process, "DGL_CONF_PATH", self.part_config.as_deref().unwrap_or_default());
        set(process, "DGL_IP_CONFIG", &self.ip_config);
        set(process, "DGL_GRAPH_FORMAT", &self.graph_format);
    }

    fn master_env(&self, process: &mut Process) {
        set(process, "MASTER_ADDR", self.hosts[0].ip);
        set(process, "MASTER_PORT", self.master_port);
    }

    /// What all processes get, then what the user wants, which wins.
    fn finish(&self, mut process: Process, host: &Host, command: UserCommand) -> Process {
        // lines come when they are printed, and a crash or SIGABRT shows where the program stood
        set(&mut process, "PYTHONUNBUFFERED", 1);
        set(&mut process, "PYTHONFAULTHANDLER", 1);
        if let Some(path) = &self.here.pythonpath {
            process.set_env("PYTHONPATH", path);
        }
        if let Some(iface) = &host.facts.iface {
            set(&mut process, "GLOO_SOCKET_IFNAME", iface);
            set(&mut process, "TP_SOCKET_IFNAME", iface);
            // NCCL matches prefixes without the equals sign
            set(&mut process, "NCCL_SOCKET_IFNAME", format!("={iface}"));
        }
        for (name, value) in &self.env {
            process.set_env(name, value);
        }
        match command {
            UserCommand::Words(words) => process.set_words(&words),
            UserCommand::Shell(text) => process.shell = Some(text),
        }
        process
    }

    /// The launching machine's OMP_NUM_THREADS, unless a flag says otherwise.
    fn launcher_omp(&self) -> Option<&OsString> {
        self.here.omp_num_threads.as_ref().filter(|value| !value.is_empty() && self.num_omp_threads.is_none())
    }

    /// As launch.py: half of the processors, which hyperthreads double, shared by the trainers.
    fn omp_threads(&self, cpus: u32) -> u32 {
        self.num_omp_threads.unwrap_or((cpus / 2 / self.num_trainers).max(1))
    }

    fn torch_words(&self, node: u32) -> Vec<OsString> {
        let module = match self.launcher {
            Launcher::TorchLaunch => "torch.distributed.launch",
            Launcher::Direct | Launcher::Torchrun => "torch.distributed.run",
        };
        let mut words: Vec<OsString> = ["-m", module].map(OsString::from).to_vec();
        words.push(format!("--nproc_per_node={}", self.num_trainers).into());
        words.push(format!("--nnodes={}", self.hosts.len()).into());
        words.push(format!("--node_rank={node}").into());
        words.push(format!("--master_addr={}", self.hosts[0].ip).into());
        words.push(format!("--master_port={}", self.master_port).into());
        words.extend(self.launcher_args.iter().cloned());
        words
    }
}

fn set(process: &mut Process, name: &str, value: impl ToString) {
    process.set_env(name, OsStr::new(&value.to_string()));
}

/// What the command line and the stream say of the same thing.
fn agreed(option: &str, given: Option<&Path>, stream: Option<&Path>) -> Result<Option<String>, Fault> {
    // `data/./g.json` and `data//g.json` are the same
    let clean = |path: &Path| path.components().filter(|part| *part != std::path::Component::CurDir).collect::<PathBuf>();
    match (given.map(clean), stream.map(clean)) {
        (Some(given), Some(stream)) if given != stream => {
            let problem = format!("{} here, but {} in the stream's graph record", given.display(), stream.display());
            Err(Fault::data(option, problem).fix(format!("leave {option} out: the graph record says it")))
        }
        (Some(path), _) | (None, Some(path)) => match path.to_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(Fault::usage(option, "must be UTF-8")),
        },
        (None, None) => Ok(None),
    }
}

/// The command with torch's launcher between the interpreter and its arguments.
fn under_torch(command: &UserCommand, torch: &[OsString]) -> Result<UserCommand, Fault> {
    let refused = |word: &str| {
        let fault = Fault::usage(
            "COMMAND",
            format!("begins with {word}, not with a Python interpreter, so torch's launcher cannot be put behind it"),
        );
        fault.fix("begin the command with python3, or take --launcher direct")
    };
    match command {
        UserCommand::Words(words) => match words.split_first() {
            Some((first, rest)) if is_python(first) => {
                Ok(UserCommand::Words([first].into_iter().chain(torch).chain(rest).cloned().collect()))
            }
            first => Err(refused(&first.map_or_else(String::new, |(word, _)| quote::shown(word.as_bytes())))),
        },
        UserCommand::Shell(text) => {
            let first = text.split_whitespace().next().unwrap_or_default();
            if !is_python(OsStr::new(first)) {
                return Err(refused(first));
            }
            let words = torch.iter().map(|word| quote::shown(word.as_bytes())).collect::<Vec<_>>().join(" ");
            Ok(UserCommand::Shell(text.replacen(first, &format!("{first} {words}"), 1)))
        }
    }
}

/// `python`, `python3`, `/opt/env/bin/python3.11`.
fn is_python(word: &OsStr) -> bool {
    let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.strip_prefix("python").is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn with_local_rank(command: &UserCommand, local_rank: u32) -> UserCommand {
    match command {
        UserCommand::Words(words) => {
            UserCommand::Words(words.iter().cloned().chain([format!("--local_rank={local_rank}").into()]).collect())
        }
        UserCommand::Shell(text) => UserCommand::Shell(format!("{text} --local_rank={local_rank}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use common::record::{Command, Facts, IpAddr};

    fn hosts(count: u32) -> Vec<Host> {
        let host = |id| Host { id, of: count, ip: IpAddr([10, 0, 0, id as u8 + 1].into()), port: 30050, ..Host::default() };
        (0..count).map(host).collect()
    }

    fn graph(parts: u32) -> Graph {
        Graph {
            graph_name: "g".into(),
            num_parts: parts,
            files: 0,
            workspace: "/ws".into(),
            part_config: "data/g.json".into(),
            ip_config: "ip.txt".into(),
        }
    }

    fn plan(line: &str, hosts: Vec<Host>, graph: Option<Graph>, here: Here) -> Result<Vec<Process>, Vec<String>> {
        let args = Args::try_parse_from(["dgl-env"].into_iter().chain(line.split(' '))).map_err(|error| vec![error.to_string()])?;
        let faults = |report: Report| report.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        let command = args.command().map_err(faults)?;
        let env = user_env(&args.env, |_| Some("from here".into())).map_err(faults)?;
        let plan = Plan::new(&args, command, hosts, graph, env, here).map_err(faults)?;
        Ok(plan.processes().collect())
    }

    fn env<'a>(process: &'a Process, name: &str) -> &'a str {
        process.env.get(name).map_or("-", String::as_str)
    }

    fn words(process: &Process) -> String {
        match process.command().unwrap() {
            Command::Words(words) => words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "),
            Command::Shell(text) => format!("sh: {text}"),
        }
    }

    #[test]
    fn the_table_of_launch_py() {
        let here = Here { cpus: 16, ..Here::default() };
        let all = plan("--num-trainers 2 --num-samplers 3 --num-servers 2 -- python3 t.py", hosts(2), Some(graph(2)), here).unwrap();
        assert_eq!(all.len(), 8);
        assert!(all.iter().enumerate().all(|(id, process)| process.id as usize == id && process.of == 8));
        let (server, trainer) = (&all[3], &all[6]);
        let table = [
            ("DGL_ROLE", "server", "client"),
            ("DGL_SERVER_ID", "3", "-"),
            ("DGL_DIST_MODE", "-", "distributed"),
            ("DGL_NUM_CLIENT", "16", "16"),
            ("DGL_CONF_PATH", "data/g.json", "data/g.json"),
            ("DGL_IP_CONFIG", "ip.txt", "ip.txt"),
            ("DGL_NUM_SERVER", "2", "2"),
            ("DGL_NUM_SAMPLER", "3", "3"),
            ("DGL_GRAPH_FORMAT", "csc", "csc"),
            ("DGL_GROUP_ID", "-", "0"),
            ("OMP_NUM_THREADS", "1", "4"),
            ("RANK", "-", "2"),
            ("LOCAL_RANK", "-", "0"),
            ("WORLD_SIZE", "-", "4"),
            ("LOCAL_WORLD_SIZE", "-", "2"),
            ("GROUP_RANK", "-", "1"),
            ("MASTER_ADDR", "-", "10.0.0.1"),
            ("MASTER_PORT", "-", "29500"),
            ("PYTHONUNBUFFERED", "1", "1"),
            ("PYTHONFAULTHANDLER", "1", "1"),
            ("GLOO_SOCKET_IFNAME", "-", "-"),
            ("PYTHONPATH", "-", "-"),
        ];
        for (name, of_server, of_trainer) in table {
            assert_eq!((env(server, name), env(trainer, name)), (of_server, of_trainer), "{name}");
        }
        assert_eq!((server.role, server.rank, server.host, server.port), (Role::Server, 3, 1, Some(30051)));
        assert_eq!((trainer.role, trainer.rank, trainer.host, trainer.port), (Role::Trainer, 2, 1, None));
        assert_eq!(trainer.cwd.as_deref(), Some("/ws"));
        assert_eq!(words(server), "python3 t.py");
    }

    #[test]
    fn facts_of_hosts_are_used() {
        let mut two = hosts(2);
        two[0].facts = Facts { cpus: Some(8), iface: Some("eth1".into()), master_port: Some(29507), ..Facts::default() };
        let here = Here { cpus: 64, pythonpath: Some("/lib".into()), ..Here::default() };
        let all = plan("--num-trainers 1 -- python3 t.py", two, Some(graph(2)), here).unwrap();
        let trainer = &all[2];
        assert_eq!(env(trainer, "OMP_NUM_THREADS"), "4");
        assert_eq!(env(trainer, "GLOO_SOCKET_IFNAME"), "eth1");
        assert_eq!(env(trainer, "NCCL_SOCKET_IFNAME"), "=eth1");
        assert_eq!(env(trainer, "MASTER_PORT"), "29507");
        assert_eq!(env(trainer, "PYTHONPATH"), "/lib");
        assert_eq!(env(&all[3], "OMP_NUM_THREADS"), "32", "of this machine where the host's is not known");
    }

    #[test]
    fn who_says_how_many_threads() {
        let omp = |line: &str, own: Option<&str>| {
            let here = Here { cpus: 16, omp_num_threads: own.map(OsString::from), ..Here::default() };
            let all = plan(&format!("{line} --num-trainers 2 -- python3 t.py"), hosts(1), Some(graph(1)), here).unwrap();
            (env(&all[0], "OMP_NUM_THREADS").to_owned(), env(&all[1], "OMP_NUM_THREADS").to_owned())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(omp("--num-samplers 0", None), pair("1", "4"));
        assert_eq!(omp("--num-samplers 0", Some("6")), pair("1", "6"));
        assert_eq!(omp("--num-omp-threads 3", Some("6")), pair("1", "3"));
        assert_eq!(omp("--num-server-threads 2 --env OMP_NUM_THREADS=9", Some("6")), pair("9", "9"));
    }

    #[test]
    fn under_torchrun_one_process_a_host() {
        let all = plan(
            "--launcher torchrun --launcher-arg --redirects=1 --num-trainers 4 --master-port 4000 -- /o/python3.11 t.py -x",
            hosts(2),
            Some(graph(2)),
            Here::default(),
        )
        .unwrap();
        assert_eq!(all.len(), 4);
        let trainer = &all[3];
        assert_eq!((trainer.rank, trainer.nproc, env(trainer, "RANK"), env(trainer, "MASTER_PORT")), (1, Some(4), "-", "-"));
        assert_eq!(
            words(trainer),
            "/o/python3.11 -m torch.distributed.run --nproc_per_node=4 --nnodes=2 --node_rank=1 --master_addr=10.0.0.1 --master_port=4000 --redirects=1 t.py -x"
        );
        assert_eq!(words(&all[0]), "/o/python3.11 t.py -x", "a server is started as it stands");
        let launch = plan("--launcher torch-launch --num-trainers 1 -- python t.py", hosts(1), Some(graph(1)), Here::default()).unwrap();
        assert!(words(&launch[1]).starts_with("python -m torch.distributed.launch --nproc_per_node=1 "));
        for command in ["-- numactl python3 t.py", "-- python-wrapper t.py", "-- pythonic t.py"] {
            let refused = plan(&format!("--launcher torchrun --num-trainers 1 {command}"), hosts(1), Some(graph(1)), Here::default());
            assert!(refused.unwrap_err()[0].contains("--launcher direct"), "{command}");
        }
        let text = under_torch(&UserCommand::Shell(" python3 t.py && x".into()), &["-m".into(), "a b".into()]);
        assert_eq!(text, Ok(UserCommand::Shell(" python3 -m 'a b' t.py && x".into())));
    }

    #[test]
    fn other_shapes_of_a_job() {
        let local = plan("--local-rank-arg --num-trainers 2 -- python3 t.py", hosts(1), Some(graph(1)), Here::default()).unwrap();
        assert_eq!(words(&local[2]), "python3 t.py --local_rank=1");
        let servers = plan("--role server --num-trainers 2 -- python3 t.py", hosts(2), Some(graph(2)), Here::default()).unwrap();
        assert!(servers.len() == 2 && servers.iter().all(|process| process.role == Role::Server));
        let workers = plan("--role worker -- hostname", hosts(3), None, Here::default()).unwrap();
        assert_eq!(
            (workers.len(), env(&workers[2], "RANK"), env(&workers[2], "WORLD_SIZE"), env(&workers[2], "DGL_ROLE")),
            (3, "2", "3", "-")
        );
        let group =
            plan("--group-id 3 --role trainer --num-trainers 1 -- python3 t.py", hosts(1), Some(graph(1)), Here::default()).unwrap();
        assert_eq!(env(&group[0], "DGL_GROUP_ID"), "3");
    }

    #[test]
    fn the_environment_is_literal_and_the_last_wins() {
        let all = plan("--env A=$HOME=1 --env B --env A=2;x --num-trainers 1 -- python3 t.py", hosts(1), Some(graph(1)), Here::default())
            .unwrap();
        assert_eq!((env(&all[0], "A"), env(&all[0], "B")), ("2;x", "from here"));
        let bytes = user_env(&[OsString::from_vec(b"A=\xff\n'".to_vec())], |_| None).unwrap();
        assert_eq!(bytes, vec![("A".to_owned(), OsString::from_vec(b"\xff\n'".to_vec()))]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let table = [
            ("--num-trainers 1 -- t", None, "--workspace: is missing"),
            ("--num-trainers 1 --workspace /ws -- t", None, "--part-config: is missing"),
            ("--num-trainers 1 --workspace ws --part-config g.json -- t", None, "is not an absolute path"),
            ("--num-trainers 1 --workspace /other -- t", Some(2), "--workspace: /other here, but /ws in the stream"),
            ("--num-trainers 1 --part-config g.json -- t", Some(2), "--part-config: g.json here, but data/g.json"),
            ("--num-trainers 1 --ip-config ip_config.txt -- t", Some(2), "--ip-config: ip_config.txt here, but ip.txt"),
            ("--num-trainers 1 -- t", Some(3), "3 partitions for 2 hosts"),
            ("--num-trainers 1", Some(2), "COMMAND: is missing"),
            ("--num-trainers 1 one -- two", Some(2), "is there twice"),
            ("--role server -- t", Some(2), "--num-trainers: is missing"),
            ("--role server --role worker --num-trainers 1 -- t", Some(2), "worker does not go together"),
            ("--num-trainers 1 --env DGL_NUM_CLIENT=3 -- t", Some(2), "DGL_NUM_CLIENT cannot be set"),
            ("--num-trainers 1 --env A-B=3 -- t", Some(2), "is not a variable's name"),
            ("--num-trainers 1 --launcher-arg x -- t", Some(2), "is for --launcher torchrun"),
            ("-- t", Some(2), "--num-trainers"),
        ];
        for (line, parts, problem) in table {
            let got = plan(line, hosts(2), parts.map(graph), Here::default()).expect_err(line).join("; ");
            assert!(got.contains(problem), "{line}: {got}");
        }
        let same = plan("--num-trainers 1 --part-config ./data//g.json -- t", hosts(2), Some(graph(2)), Here::default());
        assert!(same.is_ok(), "the same path in other words");
    }
}
