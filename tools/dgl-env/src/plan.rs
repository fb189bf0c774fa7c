//! The processes of a job.
//!
//! Their environment is that of DGL's launch.py, the union of all its versions: a version ignores a
//! variable that it does not know (which reads which, dgl-env(1) says). On purpose different:
//! - `PYTHONUNBUFFERED` and `PYTHONFAULTHANDLER` are set, and each host's card for gloo, tensorpipe
//!   and NCCL.
//! - Trainers always get OMP_NUM_THREADS (launch.py from 0.6.1 on), from their own host's
//!   processors, and servers the PYTHONPATH (launch.py from 0.7.2 on). `--num-omp-threads` beats
//!   the launcher's OMP_NUM_THREADS, which beats it in launch.py.
//! - 0.6.1's launch.py takes 0 for `--num_samplers` where it runs under Python 3.8 or later; here
//!   that is a warning.
//! - Values and words arrive as they were given; launch.py has the host's shell read them again.

use crate::args::{Args, Launcher, RoleArg, Trainers};
use crate::check;
use crate::command::{UserCommand, torch_words};
use crate::environment::{ProcessPlace, UserEnv, set};
use crate::paths::ProcessPaths;
use crate::script;
use record::error::{Fault, Report};
use record::jsonl::MAX_SET;
use record::{Facts, Graph, Host, Process, Role};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where torch's rendezvous listens when nothing says otherwise; torchrun's own default.
const MASTER_PORT: u16 = 29500;

/// Where host-probe did not say.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// DGL counts its clients in 32 bits.
const MAX_CLIENTS: u64 = i32::MAX as u64;

/// What the plan needs to know of the machine it is made on.
#[derive(Default)]
pub struct LauncherFacts {
    /// Its processors.
    pub cpus: u32,
    /// Its own OMP_NUM_THREADS, which launch.py hands on.
    pub omp_num_threads: Option<OsString>,
    /// Its own PYTHONPATH, which launch.py hands on.
    pub pythonpath: Option<OsString>,
}

/// The trainers of a host.
#[derive(Clone, Copy)]
struct HostShare {
    count: u32,
    /// The rank of its first one.
    first: u32,
}

/// A job.
pub struct Plan<'a> {
    args: &'a Args,
    hosts: Vec<Host>,
    graph_name: Option<String>,
    servers: bool,
    trainers: bool,
    workers: bool,
    /// Of each host.
    of_hosts: Vec<HostShare>,
    num_trainers: u32,
    num_clients: u64,
    num_servers: u32,
    workspace: Option<String>,
    part_config: Option<String>,
    ip_config: String,
    master_port: u16,
    command: UserCommand,
    env: UserEnv,
    here: LauncherFacts,
}

impl<'a> Plan<'a> {
    /// Checks all that can be seen before a process is worked out.
    pub fn new(
        args: &'a Args,
        command: UserCommand,
        hosts: Vec<Host>,
        graph: Option<Graph>,
        env: UserEnv,
        here: LauncherFacts,
    ) -> Result<Plan<'a>, Report> {
        let mut report = Report::default();
        let num_servers = u32::from(args.num_servers);
        let wants = |role| args.role.contains(&role);
        let (servers, trainers, workers) = match args.role.is_empty() {
            true => (true, true, false),
            false => (
                wants(RoleArg::Server),
                wants(RoleArg::Trainer),
                wants(RoleArg::Worker),
            ),
        };
        report
            .0
            .extend(check::flags(args, trainers, &command, &env));
        report.0.extend(check::hosts(&hosts, num_servers));
        report
            .0
            .extend(check::servers_that_stay(args, servers, &hosts));
        report.0.extend(check::interpreter(&hosts, &command));
        report.0.extend(
            graph
                .as_ref()
                .and_then(|graph| check::graph(graph, hosts.len())),
        );

        let agreed = |report: &mut Report,
                      folder: Option<&str>,
                      option,
                      value: &'a Option<PathBuf>,
                      of_graph: fn(&Graph) -> &str| {
            let given = ProcessPaths {
                option,
                option_value: value.as_deref(),
                record_value: graph.as_ref().map(of_graph),
            };
            report
                .keep(given.agreed(folder, &hosts).map_err(Report::from))
                .flatten()
        };
        let workspace = agreed(&mut report, None, "--workspace", &args.workspace, |graph| {
            &graph.workspace
        });
        let folder = workspace.as_deref();
        let part_config = agreed(
            &mut report,
            folder,
            "--part-config",
            &args.part_config,
            |graph| &graph.part_config,
        );
        let ip_config = agreed(
            &mut report,
            folder,
            "--ip-config",
            &args.ip_config,
            |graph| &graph.ip_config,
        );
        for (option, value) in [("--workspace", &workspace), ("--part-config", &part_config)] {
            if (servers || trainers) && value.is_none() && report.0.is_empty() {
                let fault = Fault::usage(option, "is missing, and the stream has no graph record");
                report.push(fault.fix(format!(
                    "give {option}, or put part-map --part-config … before dgl-env"
                )));
            }
        }
        if let Some(dir) = workspace.as_ref().filter(|dir| !dir.starts_with('/')) {
            let problem = format!("{dir} is not an absolute path");
            let fault = match args.workspace {
                Some(_) => Fault::usage("--workspace", problem),
                None => Fault::data("stdin: graph record: workspace", problem),
            };
            report.push(fault.fix("it is the same folder on every host: begin it with / (or ~/)"));
        }

        let of_hosts = report
            .keep(of_hosts(args.num_trainers.as_ref(), &hosts).map_err(Report::from))
            .unwrap_or_default();
        let num_trainers = of_hosts.iter().map(|trainers| trainers.count).sum();
        let num_clients = u64::from(num_trainers) * u64::from(1 + args.num_samplers);
        if num_clients > MAX_CLIENTS {
            let fault = Fault::data(
                "stdin",
                format!(
                    "{num_clients} trainers and samplers are more than DGL can count \
                     ({MAX_CLIENTS})"
                ),
            );
            report.push(fault.fix("take fewer trainers, samplers or hosts"));
        }
        let master_port = args
            .master_port
            .or_else(|| hosts.first()?.facts.master_port)
            .unwrap_or(MASTER_PORT);
        if trainers {
            report.0.extend(
                hosts
                    .first()
                    .and_then(|host| check::master_port(host, master_port, num_servers)),
            );
            report.0.extend(check::torch(&hosts, args.launcher));
        }
        let graph_name = graph.map(|graph| graph.graph_name);
        let ip_config = ip_config.unwrap_or_else(|| "ip_config.txt".to_owned());
        let plan = Plan {
            args,
            hosts,
            graph_name,
            servers,
            trainers,
            workers,
            of_hosts,
            num_trainers,
            num_clients,
            num_servers,
            workspace,
            part_config,
            ip_config,
            master_port,
            command,
            env,
            here,
        };
        let processes = plan.num_processes();
        if processes > u64::from(MAX_SET) {
            let fault = Fault::data(
                "stdin",
                format!("{processes} processes are more than a stream can hold ({MAX_SET})"),
            );
            report.push(fault.fix("take fewer servers, trainers or hosts"));
        }
        report.check()?;
        Ok(plan)
    }

    /// How many hosts the job has.
    pub fn num_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Where the config would be on this machine.
    pub fn config_here(&self) -> Option<PathBuf> {
        Some(Path::new(self.workspace.as_ref()?).join(self.part_config.as_ref()?))
    }

    /// What the user should know, though it is no error. `graph_name` is that of the config on this
    /// machine, if it lies here too.
    pub fn warnings(&self, graph_name: Option<&str>) -> Vec<String> {
        let mut warnings = Vec::new();
        let unknown = |known: fn(&Host) -> bool| !self.hosts.iter().all(known);
        warnings.extend(
            self.omp_warning()
                .filter(|_| self.trainers && !self.env.sets("OMP_NUM_THREADS")),
        );
        if unknown(|host| host.facts.iface.is_some())
            && self.hosts.len() > 1
            && !self.env.sets("GLOO_SOCKET_IFNAME")
        {
            warnings.push(
                "gloo may choose the wrong network card; put host-probe before dgl-env \
                to name the right one"
                    .to_owned(),
            );
        }
        if let UserCommand::Words(words) = &self.command
            && words.len() == 1
            && words[0].as_bytes().contains(&b' ')
        {
            let word = words[0].to_string_lossy();
            warnings.push(format!(
                "{word:?} is taken for the name of one program; leave out -- to \
                have the hosts' shell read it"
            ));
        }
        if self.servers || self.trainers {
            let counts: Vec<u32> = self
                .of_hosts
                .iter()
                .map(|trainers| trainers.count)
                .collect();
            warnings.extend(check::unequal(&counts));
            warnings.extend(check::samplers(&self.hosts, self.args.num_samplers));
            warnings.extend(
                check::redirects(&self.hosts, self.args.launcher, &self.args.launcher_arg)
                    .filter(|_| self.trainers),
            );
            let job = script::Job {
                workspace: self.workspace.as_deref(),
                part_config: self.part_config.as_deref().unwrap_or_default(),
                ip_config: &self.ip_config,
                graph_name: self.graph_name.as_deref().or(graph_name),
                num_samplers: self.args.num_samplers,
                num_servers: self.num_servers,
            };
            warnings.extend(script::warnings(&self.command, &job, &self.hosts));
        }
        warnings
    }

    /// Where the threads of trainers come from, where that may surprise.
    fn omp_warning(&self) -> Option<String> {
        match (self.args.num_omp_threads, self.own_omp()) {
            (Some(threads), Some(own)) if *own != *threads.to_string() => Some(format!(
                "--num-omp-threads {threads} is taken, not OMP_NUM_THREADS={}, which is set here",
                own.to_string_lossy()
            )),
            (None, None) if self.hosts.iter().any(|host| host.facts.cpus.is_none()) => {
                let cpus = self.here.cpus;
                let threads = self.omp_threads(cpus, self.of_hosts[0].count);
                Some(format!(
                    "OMP_NUM_THREADS={threads} comes from this machine's {cpus} processors; put \
                     host-probe before dgl-env to take the hosts', \
                     or say --num-omp-threads"
                ))
            }
            _ => None,
        }
    }

    fn num_processes(&self) -> u64 {
        let hosts = self.hosts.len() as u64;
        let trainers = if self.direct() {
            u64::from(self.num_trainers)
        } else {
            hosts
        };
        hosts * u64::from(self.num_servers) * u64::from(self.servers)
            + trainers * u64::from(self.trainers)
            + hosts * u64::from(self.workers)
    }

    /// Every process, one at a time: a job of 10,000 hosts does not fit into memory as records.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let if_wanted = |wanted: bool| if wanted { self.hosts.as_slice() } else { &[] };
        let servers = if_wanted(self.servers)
            .iter()
            .flat_map(move |host| (0..self.num_servers).map(move |s| self.server(host, s)));
        let trainers = if_wanted(self.trainers)
            .iter()
            .zip(&self.of_hosts)
            .flat_map(move |(host, of_host)| {
                let processes = if self.direct() { of_host.count } else { 1 };
                (0..processes).map(move |t| {
                    if self.direct() {
                        self.trainer(host, *of_host, t)
                    } else {
                        self.torch(host, *of_host)
                    }
                })
            });
        let workers = if_wanted(self.workers).iter().map(|host| self.worker(host));
        // checked when the plan was made
        let of = u32::try_from(self.num_processes()).unwrap_or(MAX_SET);
        servers
            .chain(trainers)
            .chain(workers)
            .zip(0..)
            .map(move |(process, id)| Process { id, of, ..process })
    }

    fn server(&self, host: &Host, s: u32) -> Process {
        let rank = host.id * self.num_servers + s;
        let mut process = self.process(host, Role::Server, rank);
        process.port = u16::try_from(u32::from(host.port) + s).ok();
        self.dgl_env(&mut process);
        set(&mut process, "DGL_ROLE", "server");
        set(&mut process, "DGL_SERVER_ID", rank);
        set(
            &mut process,
            "DGL_KEEP_ALIVE",
            u8::from(self.args.keep_alive),
        );
        set(
            &mut process,
            "OMP_NUM_THREADS",
            self.args.num_server_threads,
        );
        self.advice(&mut process, host);
        self.env.add_to(
            &mut process,
            &self.env.server,
            ProcessPlace {
                local_rank: s,
                rank,
                host: host.id,
            },
        );
        with_command(process, host, self.command.clone())
    }

    /// A trainer that is a process of ours, with what torch's launcher would give it.
    fn trainer(&self, host: &Host, of_host: HostShare, t: u32) -> Process {
        let rank = of_host.first + t;
        let mut process = self.process(host, Role::Trainer, rank);
        self.trainer_env(&mut process, host, of_host);
        set(&mut process, "RANK", rank);
        set(&mut process, "LOCAL_RANK", t);
        set(&mut process, "WORLD_SIZE", self.num_trainers);
        set(&mut process, "LOCAL_WORLD_SIZE", of_host.count);
        set(&mut process, "GROUP_RANK", host.id);
        self.master_env(&mut process);
        self.advice(&mut process, host);
        self.env.add_to(
            &mut process,
            &self.env.trainer,
            ProcessPlace {
                local_rank: t,
                rank,
                host: host.id,
            },
        );
        let command = match self.args.local_rank_arg {
            true => self.command.with_local_rank(t).ok(),
            false => None,
        };
        with_command(
            process,
            host,
            command.unwrap_or_else(|| self.command.clone()),
        )
    }

    /// Torch's launcher, which starts the trainers of a host.
    fn torch(&self, host: &Host, of_host: HostShare) -> Process {
        let mut process = self.process(host, Role::Trainer, host.id);
        process.nproc = Some(of_host.count);
        self.trainer_env(&mut process, host, of_host);
        self.advice(&mut process, host);
        self.env.add_to(
            &mut process,
            &self.env.trainer,
            ProcessPlace {
                local_rank: 0,
                rank: host.id,
                host: host.id,
            },
        );
        let Args {
            launcher,
            launcher_arg,
            ..
        } = self.args;
        let master = self.hosts[0].ip.to_string();
        let torch = torch_words(
            launcher.torch_module(),
            of_host.count,
            self.hosts.len(),
            host.id,
            &master,
            self.master_port,
            launcher_arg,
        );
        // checked when the plan was made
        let command = self
            .command
            .under_torch(&torch)
            .unwrap_or_else(|_| self.command.clone());
        with_command(process, host, command)
    }

    fn worker(&self, host: &Host) -> Process {
        let mut process = self.process(host, Role::Worker, host.id);
        set(&mut process, "RANK", host.id);
        set(&mut process, "WORLD_SIZE", self.hosts.len());
        if let Some(threads) = self.args.num_omp_threads {
            set(&mut process, "OMP_NUM_THREADS", threads);
        }
        self.master_env(&mut process);
        self.advice(&mut process, host);
        self.env.add_to(
            &mut process,
            &[],
            ProcessPlace {
                local_rank: 0,
                rank: host.id,
                host: host.id,
            },
        );
        with_command(process, host, self.command.clone())
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
            server_name: None,
            cwd: self.workspace.clone(),
            env: Default::default(),
            env_b64: Default::default(),
            setup: self.args.setup.clone(),
            argv: None,
            argv_b64: None,
            shell: None,
        }
    }

    /// What servers and trainers share.
    fn dgl_env(&self, process: &mut Process) {
        process.server_name.clone_from(&self.args.server_name);
        set(process, "DGL_NUM_CLIENT", self.num_clients);
        set(process, "DGL_NUM_SERVER", self.num_servers);
        set(process, "DGL_NUM_SAMPLER", self.args.num_samplers);
        set(
            process,
            "DGL_CONF_PATH",
            self.part_config.as_deref().unwrap_or_default(),
        );
        set(process, "DGL_IP_CONFIG", &self.ip_config);
        set(process, "DGL_GRAPH_FORMAT", &self.args.graph_format);
    }

    fn trainer_env(&self, process: &mut Process, host: &Host, of_host: HostShare) {
        self.dgl_env(process);
        set(process, "DGL_ROLE", "client");
        set(process, "DGL_DIST_MODE", "distributed");
        // the servers' own hosts give the numbers out
        if self.args.server_name.is_none() {
            set(process, "DGL_GROUP_ID", self.args.group_id);
        }
        match self.launcher_omp() {
            Some(own) => process.set_env("OMP_NUM_THREADS", own),
            None => set(
                process,
                "OMP_NUM_THREADS",
                self.omp_threads(host.facts.cpus.unwrap_or(self.here.cpus), of_host.count),
            ),
        }
    }

    fn master_env(&self, process: &mut Process) {
        set(process, "MASTER_ADDR", self.hosts[0].ip);
        // groups that start at the same moment would meet at one port: dgl-spawn gives each another
        if self.args.server_name.is_none() || self.args.master_port.is_some() {
            set(process, "MASTER_PORT", self.master_port);
        }
    }

    /// What every process gets and the user may set otherwise.
    fn advice(&self, process: &mut Process, host: &Host) {
        // lines come when they are printed, and a crash or SIGABRT shows where the program stood
        set(process, "PYTHONUNBUFFERED", 1);
        set(process, "PYTHONFAULTHANDLER", 1);
        if let Some(path) = self
            .here
            .pythonpath
            .as_ref()
            .filter(|path| !path.is_empty())
        {
            process.set_env("PYTHONPATH", path);
        }
        if let Some(iface) = &host.facts.iface {
            set(process, "GLOO_SOCKET_IFNAME", iface);
            set(process, "TP_SOCKET_IFNAME", iface);
            // NCCL matches prefixes without the equals sign
            set(process, "NCCL_SOCKET_IFNAME", format!("={iface}"));
        }
        // as an activation would
        if let Some(prefix) = &host.facts.prefix {
            set(
                process,
                "PATH",
                format!(
                    "{prefix}/bin:{}",
                    host.facts.path.as_deref().unwrap_or(USUAL_PATH)
                ),
            );
            match &host.facts.conda_env {
                Some(name) => {
                    set(process, "CONDA_PREFIX", prefix);
                    set(process, "CONDA_DEFAULT_ENV", name);
                }
                None => set(process, "VIRTUAL_ENV", prefix),
            }
        }
    }

    fn direct(&self) -> bool {
        self.args.launcher == Launcher::Direct
    }

    /// The launching machine's OMP_NUM_THREADS.
    fn own_omp(&self) -> Option<&OsString> {
        self.here
            .omp_num_threads
            .as_ref()
            .filter(|value| !value.is_empty())
    }

    /// The same, unless a flag says otherwise.
    fn launcher_omp(&self) -> Option<&OsString> {
        self.own_omp()
            .filter(|_| self.args.num_omp_threads.is_none())
    }

    /// As launch.py: half of the processors, which hyperthreads double, shared by the trainers.
    fn omp_threads(&self, cpus: u32, trainers: u32) -> u32 {
        self.args
            .num_omp_threads
            .unwrap_or((cpus / 2 / trainers).max(1))
    }
}

/// Which trainers each host has.
fn of_hosts(trainers: Option<&Trainers>, hosts: &[Host]) -> Result<Vec<HostShare>, Fault> {
    let counts = trainers.map_or(&[1][..], |Trainers(counts)| counts);
    if counts.len() != 1 && counts.len() != hosts.len() {
        let fault = Fault::usage(
            "--num-trainers",
            format!("has {} numbers for {} hosts", counts.len(), hosts.len()),
        );
        return Err(fault.fix("give one for all, or one a host in the order of ip_config"));
    }
    let mut first = 0;
    let of_host = |(_, count): (&Host, &u32)| {
        first += count;
        HostShare {
            count: *count,
            first: first - count,
        }
    };
    Ok(hosts
        .iter()
        .zip(counts.iter().cycle())
        .map(of_host)
        .collect())
}

/// Of the environment that host-probe found, it is the interpreter that counts, whatever PATH will
/// be.
fn with_command(mut process: Process, host: &Host, command: UserCommand) -> Process {
    let Facts {
        prefix,
        python_path,
        ..
    } = &host.facts;
    let command = match python_path.as_ref().filter(|_| prefix.is_some()) {
        Some(python) => command.with_interpreter(python),
        None => command,
    };
    match command {
        UserCommand::Words(words) => process.set_words(&words),
        UserCommand::Shell(text) => process.shell = Some(text),
    }
    process
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use record::{Command, IpAddr};

    fn hosts(count: u32) -> Vec<Host> {
        let host = |id| Host {
            id,
            of: count,
            ip: IpAddr((0x0a00_0001 + id).into()),
            port: 30050,
            ..Host::default()
        };
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

    fn plan(
        line: &str,
        hosts: Vec<Host>,
        graph: Option<Graph>,
        here: LauncherFacts,
    ) -> Result<Vec<Process>, Vec<String>> {
        let args = Args::try_parse_from(["dgl-env"].into_iter().chain(line.split(' ')))
            .map_err(|error| vec![error.to_string()])?;
        let faults = |report: Report| report.0.iter().map(ToString::to_string).collect::<Vec<_>>();
        let command = args.command().map_err(faults)?;
        let env = UserEnv::new(&args.env, &args.server_env, &args.trainer_env, &|_| {
            Some("from here".into())
        })
        .map_err(faults)?;
        let plan = Plan::new(&args, command, hosts, graph, env, here).map_err(faults)?;
        Ok(plan.processes().collect())
    }

    fn env<'a>(process: &'a Process, name: &str) -> &'a str {
        process.env.get(name).map_or("-", String::as_str)
    }

    fn words(process: &Process) -> String {
        match process.command().unwrap() {
            Command::Words(words) => words
                .iter()
                .map(|word| word.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" "),
            Command::Shell(text) => format!("sh: {text}"),
        }
    }

    #[test]
    fn the_table_of_launch_py() {
        let here = LauncherFacts {
            cpus: 16,
            ..LauncherFacts::default()
        };
        let all = plan(
            "--num-trainers 2 --num-samplers 3 --num-servers 2 -- python3 t.py",
            hosts(2),
            Some(graph(2)),
            here,
        )
        .unwrap();
        assert_eq!(all.len(), 8);
        assert!(
            all.iter()
                .enumerate()
                .all(|(id, process)| process.id as usize == id && process.of == 8)
        );
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
            ("DGL_KEEP_ALIVE", "0", "-"),
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
            assert_eq!(
                (env(server, name), env(trainer, name)),
                (of_server, of_trainer),
                "{name}"
            );
        }
        assert_eq!(
            (server.role, server.rank, server.host, server.port),
            (Role::Server, 3, 1, Some(30051))
        );
        assert_eq!(
            (trainer.role, trainer.rank, trainer.host, trainer.port),
            (Role::Trainer, 2, 1, None)
        );
        assert_eq!(trainer.cwd.as_deref(), Some("/ws"));
        assert_eq!(words(server), "python3 t.py");
    }

    #[test]
    fn facts_of_hosts_are_used() {
        let mut two = hosts(2);
        two[0].facts = Facts {
            cpus: Some(8),
            iface: Some("eth1".into()),
            master_port: Some(29507),
            ..Facts::default()
        };
        let here = LauncherFacts {
            cpus: 64,
            pythonpath: Some("/lib".into()),
            ..LauncherFacts::default()
        };
        let all = plan(
            "--num-trainers 1 -- python3 t.py",
            two,
            Some(graph(2)),
            here,
        )
        .unwrap();
        let trainer = &all[2];
        assert_eq!(env(trainer, "OMP_NUM_THREADS"), "4");
        assert_eq!(env(trainer, "GLOO_SOCKET_IFNAME"), "eth1");
        assert_eq!(env(trainer, "NCCL_SOCKET_IFNAME"), "=eth1");
        assert_eq!(env(trainer, "MASTER_PORT"), "29507");
        assert_eq!(env(trainer, "PYTHONPATH"), "/lib");
        assert_eq!(
            env(&all[3], "OMP_NUM_THREADS"),
            "32",
            "of this machine where the host's is not known"
        );
    }

    #[test]
    fn the_environment_that_host_probe_was_told_to_take() {
        let mut three = hosts(3);
        let facts = |prefix: &str, conda_env: Option<&str>| Facts {
            prefix: Some(prefix.into()),
            python_path: Some(format!("{prefix}/bin/python3")),
            conda_env: conda_env.map(str::to_owned),
            path: Some("/usr/bin:/bin".into()),
            ..Facts::default()
        };
        three[0].facts = facts("/o/envs/gnn", Some("gnn"));
        three[1].facts = facts("/home/u/v", None);
        // one that was probed without
        three[2].facts = Facts {
            python_path: Some("/usr/bin/python3".into()),
            ..Facts::default()
        };
        let of = |line: &str| {
            plan(
                &format!("--num-trainers 1 {line}"),
                three.clone(),
                Some(graph(3)),
                LauncherFacts::default(),
            )
            .unwrap()
        };
        let names = ["PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV"];
        let all = of("-- python t.py");
        let seen: Vec<_> = all
            .iter()
            .map(|process| names.map(|name| env(process, name)))
            .collect();
        let wanted = [
            ["/o/envs/gnn/bin:/usr/bin:/bin", "/o/envs/gnn", "gnn", "-"],
            ["/home/u/v/bin:/usr/bin:/bin", "-", "-", "/home/u/v"],
            ["-"; 4],
        ];
        assert_eq!(seen, [wanted, wanted].concat(), "servers and trainers");
        let commands: Vec<_> = all[..3].iter().map(words).collect();
        assert_eq!(
            commands,
            [
                "/o/envs/gnn/bin/python3 t.py",
                "/home/u/v/bin/python3 t.py",
                "python t.py"
            ]
        );
        let torch = of("--launcher torchrun -- python3 -u t.py");
        assert!(
            words(&torch[4]).starts_with("/home/u/v/bin/python3 -u -m torch.distributed.run "),
            "{}",
            words(&torch[4])
        );
        assert_eq!(words(&torch[1]), "/home/u/v/bin/python3 -u t.py");
        let local = of("--local-rank-arg -- python3 t.py");
        assert_eq!(
            words(&local[4]),
            "/home/u/v/bin/python3 t.py --local_rank=0"
        );
        let own = of("--env PATH=/own --env VIRTUAL_ENV= -- python3 t.py");
        assert_eq!(
            (
                env(&own[1], "PATH"),
                env(&own[1], "VIRTUAL_ENV"),
                words(&own[1]).as_str()
            ),
            ("/own", "", "/home/u/v/bin/python3 t.py")
        );
        let workers = plan(
            "--role worker -- python3 t.py",
            three.clone(),
            None,
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!(
            (
                env(&workers[0], "CONDA_PREFIX"),
                words(&workers[0]).as_str()
            ),
            ("/o/envs/gnn", "/o/envs/gnn/bin/python3 t.py")
        );
    }

    #[test]
    fn who_says_how_many_threads() {
        let omp = |line: &str, own: Option<&str>| {
            let here = LauncherFacts {
                cpus: 16,
                omp_num_threads: own.map(OsString::from),
                ..LauncherFacts::default()
            };
            let all = plan(
                &format!("{line} --num-trainers 2 -- python3 t.py"),
                hosts(1),
                Some(graph(1)),
                here,
            )
            .unwrap();
            (
                env(&all[0], "OMP_NUM_THREADS").to_owned(),
                env(&all[1], "OMP_NUM_THREADS").to_owned(),
            )
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(omp("--num-samplers 0", None), pair("1", "4"));
        assert_eq!(omp("--num-samplers 0", Some("6")), pair("1", "6"));
        assert_eq!(omp("--num-omp-threads 3", Some("6")), pair("1", "3"));
        assert_eq!(
            omp("--num-server-threads 2 --env OMP_NUM_THREADS=9", Some("6")),
            pair("9", "9")
        );
    }

    #[test]
    fn under_torchrun_one_process_a_host() {
        let all = plan(
            "--launcher torchrun --launcher-arg --redirects=1 --num-trainers 4 --master-port 4000 \
             -- /o/python3.11 t.py -x",
            hosts(2),
            Some(graph(2)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!(all.len(), 4);
        let trainer = &all[3];
        assert_eq!(
            (
                trainer.rank,
                trainer.nproc,
                env(trainer, "RANK"),
                env(trainer, "MASTER_PORT")
            ),
            (1, Some(4), "-", "-")
        );
        assert_eq!(
            words(trainer),
            "/o/python3.11 -m torch.distributed.run --nproc_per_node=4 --nnodes=2 --node_rank=1 \
             --master_addr=10.0.0.1 --master_port=4000 --redirects=1 t.py -x"
        );
        assert_eq!(
            words(&all[0]),
            "/o/python3.11 t.py -x",
            "a server is started as it stands"
        );
        let launch = plan(
            "--launcher torch-launch --num-trainers 1 -- python t.py",
            hosts(1),
            Some(graph(1)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert!(
            words(&launch[1]).starts_with("python -m torch.distributed.launch --nproc_per_node=1 ")
        );
    }

    #[test]
    fn hosts_with_unequal_numbers_of_trainers() {
        let line = "--num-trainers 8,8,4 --num-samplers 2 --trainer-env \
            CUDA_VISIBLE_DEVICES={local_rank} --trainer-env ME={rank}@{host} \
                    --server-env ME={local_rank} --num-servers 2 -- t";
        let all = plan(
            line,
            hosts(3),
            Some(graph(3)),
            LauncherFacts {
                cpus: 64,
                ..LauncherFacts::default()
            },
        )
        .unwrap();
        assert_eq!(all.len(), 6 + 20);
        assert!(
            all.iter()
                .all(|process| env(process, "DGL_NUM_CLIENT") == "60")
        );
        assert_eq!(env(&all[5], "ME"), "1");
        let of_trainer = |rank: usize| {
            let names = [
                "RANK",
                "LOCAL_RANK",
                "LOCAL_WORLD_SIZE",
                "GROUP_RANK",
                "OMP_NUM_THREADS",
                "CUDA_VISIBLE_DEVICES",
                "ME",
            ];
            names.map(|name| env(&all[6 + rank], name)).join(" ")
        };
        assert_eq!(of_trainer(7), "7 7 8 0 4 7 7@0");
        assert_eq!(of_trainer(8), "8 0 8 1 4 0 8@1");
        assert_eq!(of_trainer(19), "19 3 4 2 8 3 19@2");
        assert!(
            all[6..]
                .iter()
                .all(|process| env(process, "WORLD_SIZE") == "20")
        );
    }

    #[test]
    fn home_is_what_host_probe_found() {
        let mut two = hosts(2);
        two.iter_mut()
            .for_each(|host| host.facts.home = Some("/home/u".into()));
        let line = "--num-trainers 1 --workspace ~/job --part-config ~/job/data/g.json -- t";
        let all = plan(line, two, None, LauncherFacts::default()).unwrap();
        assert_eq!(
            (all[0].cwd.as_deref(), env(&all[0], "DGL_CONF_PATH")),
            (Some("/home/u/job"), "/home/u/job/data/g.json")
        );
    }

    #[test]
    fn other_shapes_of_a_job() {
        let local = plan(
            "--local-rank-arg --num-trainers 2 -- python3 t.py",
            hosts(1),
            Some(graph(1)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!(words(&local[2]), "python3 t.py --local_rank=1");
        let servers = plan(
            "--role server --num-trainers 2 -- python3 t.py",
            hosts(2),
            Some(graph(2)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert!(servers.len() == 2 && servers.iter().all(|process| process.role == Role::Server));
        let workers = plan(
            "--role worker -- hostname",
            hosts(3),
            None,
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!(
            (
                workers.len(),
                env(&workers[2], "RANK"),
                env(&workers[2], "WORLD_SIZE"),
                env(&workers[2], "DGL_ROLE")
            ),
            (3, "2", "3", "-")
        );
        let group = plan(
            "--group-id 3 --role trainer --num-trainers 1 -- python3 t.py",
            hosts(1),
            Some(graph(1)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!(env(&group[0], "DGL_GROUP_ID"), "3");
    }

    #[test]
    fn the_environment_is_literal_and_the_last_wins() {
        let all = plan(
            "--env A=$HOME=1 --env B --env A=2;x --num-trainers 1 -- python3 t.py",
            hosts(1),
            Some(graph(1)),
            LauncherFacts::default(),
        )
        .unwrap();
        assert_eq!((env(&all[0], "A"), env(&all[0], "B")), ("2;x", "from here"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let table = [
            ("--num-trainers 1 -- t", None, "--workspace: is missing"),
            (
                "--num-trainers 1 --workspace /ws -- t",
                None,
                "--part-config: is missing",
            ),
            (
                "--num-trainers 1 --workspace ws --part-config g.json -- t",
                None,
                "is not an absolute path",
            ),
            (
                "--num-trainers 1 --workspace /other -- t",
                Some(2),
                "--workspace: /other here, but /ws in the stream",
            ),
            (
                "--num-trainers 1 --part-config g.json -- t",
                Some(2),
                "--part-config: g.json here, but data/g.json",
            ),
            (
                "--num-trainers 1 --ip-config ip_config.txt -- t",
                Some(2),
                "--ip-config: ip_config.txt here, but ip.txt",
            ),
            ("--num-trainers 1 -- t", Some(3), "3 partitions for 2 hosts"),
            ("--num-trainers 1", Some(2), "COMMAND: is missing"),
            ("--num-trainers 1 one -- two", Some(2), "is there twice"),
            ("--role server -- t", Some(2), "--num-trainers: is missing"),
            (
                "--role server --role worker --num-trainers 1 -- t",
                Some(2),
                "worker does not go together",
            ),
            (
                "--num-trainers 1 --env DGL_NUM_CLIENT=3 -- t",
                Some(2),
                "DGL_NUM_CLIENT cannot be set",
            ),
            (
                "--num-trainers 1 --env A-B=3 -- t",
                Some(2),
                "is not a variable's name",
            ),
            (
                "--num-trainers 1 --launcher-arg x -- t",
                Some(2),
                "is for --launcher torchrun",
            ),
            (
                "--num-trainers 1 --launcher torchrun -- ./t",
                Some(2),
                "COMMAND: has no Python interpreter",
            ),
            (
                "--num-trainers 1 -- torchrun t.py",
                Some(2),
                "COMMAND: starts torch's launcher itself",
            ),
            (
                "--num-trainers 1 --launcher torchrun --local-rank-arg -- python t",
                Some(2),
                "--local-rank-arg: is for --launcher direct",
            ),
            (
                "--num-trainers 1,2 --launcher torchrun -- python t",
                Some(2),
                "--num-trainers: 1,2: torch's launcher supports one number",
            ),
            (
                "--num-trainers 1,2,3 -- t",
                Some(2),
                "--num-trainers: has 3 numbers for 2 hosts",
            ),
            (
                "--num-trainers 1,0 -- t",
                Some(2),
                "\"0\" is not a number from 1 to 1024",
            ),
            ("--num-trainers 1, -- t", Some(2), "\"\" is not a number"),
            (
                "--num-trainers 1 --trainer-env A={gpu} -- t",
                Some(2),
                "{gpu} is not {local_rank}",
            ),
            (
                "--num-trainers 1 --launcher torchrun --trainer-env A={rank} -- python t",
                Some(2),
                "have the script read LOCAL_RANK",
            ),
            (
                "--role worker --trainer-env A=b -- t",
                Some(2),
                "are not for workers",
            ),
            (
                "--num-trainers 1 --graph-format csc,cso -- t",
                Some(2),
                "\"cso\" is not csc, coo or csr",
            ),
            (
                "--num-trainers 1 --num-servers 2 --master-port 30051 -- t",
                Some(2),
                "the master port 30051 is one of its servers' (30050 to 30051)",
            ),
            (
                "--num-trainers 1 --workspace ~/ws -- t",
                None,
                "--workspace: ~/ws: the home of host 0 (10.0.0.1) is not known",
            ),
            ("-- t", Some(2), "--num-trainers"),
        ];
        for (line, parts, problem) in table {
            let got = plan(line, hosts(2), parts.map(graph), LauncherFacts::default())
                .expect_err(line)
                .join("; ");
            assert!(got.contains(problem), "{line}: {got}");
        }
        let line = "--num-trainers 1024 --num-samplers 1024 --num-servers 1024 -- t";
        let got = plan(
            line,
            hosts(2100),
            Some(graph(2100)),
            LauncherFacts::default(),
        )
        .unwrap_err()
        .join("; ");
        assert!(
            got.contains("2204160000 trainers and samplers are more")
                && got.contains("4300800 processes are more than"),
            "{got}"
        );
        let same = plan(
            "--num-trainers 1 --part-config ./data//g.json -- t",
            hosts(2),
            Some(graph(2)),
            LauncherFacts::default(),
        );
        assert!(same.is_ok(), "the same path in other words");
    }
}
