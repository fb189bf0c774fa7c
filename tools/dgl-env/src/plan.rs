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

use crate::args::{Args, Launcher, RankOption, RoleArg, ServerThreads};
use crate::bind::{self, Crew, HostPlaces, Place};
use crate::check;
use crate::command::{UserCommand, torch_words};
use crate::environment::{UserEnv, set};
use crate::graphstorm;
use crate::paths::ProcessPaths;
use crate::placeholders::ProcessPlace;
use crate::script;
use cli::counts::PerHost;
use record::cpus;
use record::error::{Fault, Report};
use record::jsonl::MAX_SET;
use record::{Facts, Graph, Host, Process, Role, Workspace};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The port of torch's rendezvous if nothing names another one; torchrun's own default.
const MASTER_PORT: u16 = 29500;

/// The value of PATH if host-probe did not tell it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// DGL counts its clients in 32 bits.
const MAX_CLIENTS: u64 = i32::MAX as u64;

/// The facts that the plan needs about the machine on which it is made.
#[derive(Default)]
pub struct LauncherFacts {
    /// The number of processors.
    pub cpus: u32,
    /// The value of OMP_NUM_THREADS, which launch.py passes on.
    pub omp_num_threads: Option<OsString>,
    /// The value of PYTHONPATH, which launch.py passes on.
    pub pythonpath: Option<OsString>,
}

/// The trainers, or workers, of one host.
#[derive(Clone, Copy)]
struct HostShare {
    count: u32,
    /// The rank of the first of them.
    first: u32,
}

/// The facts about the job in the stream, apart from its hosts.
#[derive(Default)]
pub struct Said {
    /// The graph record, if there is one.
    pub graph: Option<Graph>,
    /// The workspace record, if there is no graph.
    pub workspace: Option<Workspace>,
}

impl Said {
    fn workspace(&self) -> Option<&str> {
        let of_graph = self.graph.as_ref().map(|graph| &graph.workspace);
        let alone = || self.workspace.as_ref().map(|alone| &alone.workspace);
        of_graph.or_else(alone).map(String::as_str)
    }

    fn ip_config(&self) -> Option<&str> {
        let of_graph = self.graph.as_ref().map(|graph| &graph.ip_config);
        let alone = || self.workspace.as_ref().map(|alone| &alone.ip_config);
        of_graph.or_else(alone).map(String::as_str)
    }
}

/// The plan of a job.
pub struct Plan<'a> {
    args: &'a Args,
    hosts: Vec<Host>,
    graph_name: Option<String>,
    servers: bool,
    trainers: bool,
    workers: bool,
    /// The trainers or workers of each host.
    of_hosts: Vec<HostShare>,
    /// Where the processes of each host run, if they are bound.
    places: Vec<HostPlaces>,
    /// The number of trainers, or workers, on all hosts.
    world_size: u32,
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

/// The roles of the processes that are planned.
#[derive(Clone, Copy)]
struct Roles {
    servers: bool,
    trainers: bool,
    workers: bool,
}

impl Roles {
    /// Servers and trainers, unless --role says otherwise.
    fn of(args: &Args) -> Roles {
        let wants = |role| args.role.contains(&role);
        match args.role.is_empty() {
            true => Roles {
                servers: true,
                trainers: true,
                workers: false,
            },
            false => Roles {
                servers: wants(RoleArg::Server),
                trainers: wants(RoleArg::Trainer),
                workers: wants(RoleArg::Worker),
            },
        }
    }
}

/// The folder of the job and the files that DGL reads there, as flags and records agree on them.
struct JobPaths {
    workspace: Option<String>,
    part_config: Option<String>,
    ip_config: Option<String>,
}

impl JobPaths {
    fn of(args: &Args, said: &Said, hosts: &[Host], report: &mut Report) -> JobPaths {
        let record = match said.graph {
            Some(_) => "graph",
            None => "workspace",
        };
        let mut agreed =
            |folder: Option<&str>, option, value: &Option<PathBuf>, record_value: Option<&str>| {
                let given = ProcessPaths {
                    option,
                    option_value: value.as_deref(),
                    record_value,
                    record,
                };
                report
                    .keep(given.agreed(folder, hosts).map_err(Report::from))
                    .flatten()
            };
        let workspace = agreed(None, "--workspace", &args.workspace, said.workspace());
        let folder = workspace.as_deref();
        let of_graph = said.graph.as_ref().map(|graph| graph.part_config.as_str());
        let part_config = agreed(folder, "--part-config", &args.part_config, of_graph);
        let ip_config = agreed(folder, "--ip-config", &args.ip_config, said.ip_config());
        JobPaths {
            workspace,
            part_config,
            ip_config,
        }
    }

    /// Checks the paths: servers and trainers need a graph, and a folder must be the same on all
    /// hosts.
    fn check(&self, args: &Args, roles: Roles, report: &mut Report) {
        let needed = [
            ("--workspace", &self.workspace),
            ("--part-config", &self.part_config),
        ];
        for (option, value) in needed {
            if (roles.servers || roles.trainers) && value.is_none() && report.0.is_empty() {
                let fault = Fault::usage(option, "is missing, and the stream has no graph record");
                report.push(fault.fix(format!(
                    "give {option}, or put part-map --part-config … before dgl-env"
                )));
            }
        }
        if let Some(dir) = self.workspace.as_ref().filter(|dir| !dir.starts_with('/')) {
            let problem = format!("{dir} is not an absolute path");
            let fault = match args.workspace {
                Some(_) => Fault::usage("--workspace", problem),
                None => Fault::data("stdin: graph record: workspace", problem),
            };
            report.push(fault.fix("it is the same folder on every host: begin it with / (or ~/)"));
        }
    }
}

fn too_many_clients(num_clients: u64) -> Option<Fault> {
    let problem =
        format!("{num_clients} trainers and samplers are more than DGL can count ({MAX_CLIENTS})");
    (num_clients > MAX_CLIENTS)
        .then(|| Fault::data("stdin", problem).fix("take fewer trainers, samplers or hosts"))
}

fn too_many_processes(processes: u64) -> Option<Fault> {
    let problem = format!("{processes} processes are more than a stream can hold ({MAX_SET})");
    (processes > u64::from(MAX_SET))
        .then(|| Fault::data("stdin", problem).fix("take fewer servers, trainers or hosts"))
}

/// Faults of the records of the hosts and of the graph.
fn records(
    args: &Args,
    roles: Roles,
    hosts: &[Host],
    command: &UserCommand,
    said: &Said,
) -> Report {
    let mut faults = check::hosts(hosts, u32::from(args.num_servers));
    faults.extend(check::servers_that_stay(args, roles.servers, hosts));
    faults.extend(check::interpreter(hosts, command));
    let graph = said.graph.as_ref();
    faults.extend(graph.and_then(|graph| check::graph(graph, hosts.len())));
    Report(faults)
}

/// The processes of each host, as their placing needs them.
fn crews(
    args: &Args,
    roles: Roles,
    hosts: &[Host],
    counts: &[u32],
    here: &LauncherFacts,
) -> impl Iterator<Item = Crew> {
    counts.iter().zip(hosts).map(move |(count, host)| Crew {
        servers: u32::from(args.num_servers) * u32::from(roles.servers),
        server_cores: server_threads(args, host, here),
        clients: count * u32::from(roles.trainers || roles.workers),
    })
}

/// The port of torch's rendezvous: the flag's, else one that host-probe found, else torch's own.
fn master_port(args: &Args, hosts: &[Host]) -> u16 {
    args.master_port
        .or_else(|| hosts.first()?.facts.master_port)
        .unwrap_or(MASTER_PORT)
}

/// Faults of the place where the trainers or workers meet, and of the torch that lets them meet.
fn rendezvous(args: &Args, roles: Roles, hosts: &[Host], master_port: u16) -> Vec<Fault> {
    let mut faults = Vec::new();
    if roles.trainers {
        let of_port = |host| check::master_port(host, master_port, u32::from(args.num_servers));
        faults.extend(hosts.first().and_then(of_port));
    }
    if roles.trainers || (roles.workers && args.launcher != Launcher::Direct) {
        faults.extend(check::torch(hosts, args.launcher));
    }
    faults
}

impl<'a> Plan<'a> {
    /// Checks everything that can be checked before a process is planned.
    pub fn new(
        args: &'a Args,
        command: UserCommand,
        hosts: Vec<Host>,
        said: Said,
        env: UserEnv,
        here: LauncherFacts,
    ) -> Result<Plan<'a>, Report> {
        let num_servers = u32::from(args.num_servers);
        let roles = Roles::of(args);
        let mut report = Report(check::flags(args, roles.trainers, &command, &env));
        report.extend(records(args, roles, &hosts, &command, &said));
        let paths = JobPaths::of(args, &said, &hosts, &mut report);
        paths.check(args, roles, &mut report);

        let (option, count) = match roles.workers {
            true => ("--num-workers", args.num_workers.as_ref()),
            false => ("--num-trainers", args.num_trainers.as_ref()),
        };
        let of_hosts = report
            .keep(of_hosts(option, count, &hosts))
            .unwrap_or_default();
        let counts: Vec<u32> = of_hosts.iter().map(|of_host| of_host.count).collect();
        report
            .0
            .extend(check::equal(option, &counts, args.launcher));
        let places = bound(args, &hosts, crews(args, roles, &hosts, &counts, &here));
        let places = report.keep(places).unwrap_or_default();
        let world_size = counts.iter().sum();
        let num_clients = u64::from(world_size) * u64::from(1 + args.num_samplers);
        report.0.extend(too_many_clients(num_clients));
        let master_port = master_port(args, &hosts);
        let meets = rendezvous(args, roles, &hosts, master_port);
        report.0.extend(meets);
        let plan = Plan {
            args,
            hosts,
            graph_name: said.graph.map(|graph| graph.graph_name),
            servers: roles.servers,
            trainers: roles.trainers,
            workers: roles.workers,
            of_hosts,
            places,
            world_size,
            num_clients,
            num_servers,
            workspace: paths.workspace,
            part_config: paths.part_config,
            ip_config: paths
                .ip_config
                .unwrap_or_else(|| "ip_config.txt".to_owned()),
            master_port,
            command,
            env,
            here,
        };
        report.0.extend(too_many_processes(plan.num_processes()));
        report.check()?;
        Ok(plan)
    }

    /// How many hosts the job has.
    pub fn num_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The path at which the partition config may be on this machine too. Where a graph record says
    /// what the hosts have, an older file here proves nothing.
    pub fn config_here(&self) -> Option<PathBuf> {
        if self.graph_name.is_some() {
            return None;
        }
        Some(Path::new(self.workspace.as_ref()?).join(self.part_config.as_ref()?))
    }

    /// What the user should know although it is no error. `graph_name` is that of the config on
    /// this machine, if it is here too.
    pub fn warnings(&self, graph_name: Option<&str>) -> Vec<String> {
        let mut warnings = Vec::new();
        let unknown = |known: fn(&Host) -> bool| !self.hosts.iter().all(known);
        warnings.extend(
            self.omp_warning()
                .filter(|_| self.counts_threads() && !self.env.sets("OMP_NUM_THREADS")),
        );
        warnings.extend(self.crowded());
        if self.args.local_rank_arg == Some(RankOption::AsTorch) {
            warnings.extend(check::unknown_torch(&self.hosts));
        }
        warnings.extend(check::more_than_gpus(&self.hosts, &self.counts()));
        let workspace = self.workspace.as_deref();
        warnings.extend(graphstorm::own_disks(&self.command, workspace, &self.hosts));
        warnings.extend(
            check::redirects(&self.hosts, self.args.launcher, &self.args.launcher_arg)
                .filter(|_| self.trainers || self.workers),
        );
        if unknown(|host| host.facts.iface.is_some())
            && self.hosts.len() > 1
            && !self.env.sets("GLOO_SOCKET_IFNAME")
        {
            warnings.push(
                "gloo may choose the wrong network interface; put host-probe before dgl-env \
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
            warnings.extend(check::unequal(&self.counts()));
            warnings.extend(check::samplers(&self.hosts, self.args.num_samplers));
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

    /// A warning about the source of the trainers' number of threads, where it may surprise.
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

    /// A warning about a host with more processes than cores; one stands for all such hosts.
    fn crowded(&self) -> Option<String> {
        let crowded = |(_, places): &(&Host, &HostPlaces)| places.is_crowded;
        let (host, places) = self.hosts.iter().zip(&self.places).find(crowded)?;
        Some(format!(
            "--bind cores: {} has {} servers and trainers on fewer cores, so some share one",
            host.place(),
            places.servers.len() + places.clients.len()
        ))
    }

    /// The place where a process runs, by its number among those of its kind on the host.
    fn place_of(
        &self,
        host: &Host,
        of_kind: fn(&HostPlaces) -> &[Place],
        at: u32,
    ) -> Option<&Place> {
        let places = self.places.get(usize::try_from(host.id).ok()?)?;
        of_kind(places).get(usize::try_from(at).ok()?)
    }

    fn num_processes(&self) -> u64 {
        let hosts = self.hosts.len() as u64;
        let clients = if self.direct() {
            u64::from(self.world_size)
        } else {
            hosts
        };
        hosts * u64::from(self.num_servers) * u64::from(self.servers)
            + clients * u64::from(self.trainers || self.workers)
    }

    /// The number of trainers, or workers, on each host.
    fn counts(&self) -> Vec<u32> {
        self.of_hosts.iter().map(|of_host| of_host.count).collect()
    }

    /// Whether processes are told how many threads they may use. A worker that is alone on its host
    /// and was not counted may be anything, and may use the whole host.
    fn counts_threads(&self) -> bool {
        let counted = self.args.num_workers.is_some() || self.args.num_omp_threads.is_some();
        self.trainers || (self.workers && counted)
    }

    /// Every process, one at a time, because a job of 10,000 hosts does not fit into memory as
    /// records.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let if_wanted = |wanted: bool| if wanted { self.hosts.as_slice() } else { &[] };
        let servers = if_wanted(self.servers)
            .iter()
            .flat_map(move |host| (0..self.num_servers).map(move |s| self.server(host, s)));
        let clients = if_wanted(self.trainers || self.workers)
            .iter()
            .zip(&self.of_hosts)
            .flat_map(move |(host, of_host)| {
                let processes = if self.direct() { of_host.count } else { 1 };
                (0..processes).map(move |t| {
                    if self.direct() {
                        self.client(host, *of_host, t)
                    } else {
                        self.torch(host, *of_host)
                    }
                })
            });
        // checked when the plan was made
        let of = u32::try_from(self.num_processes()).unwrap_or(MAX_SET);
        servers
            .chain(clients)
            .zip(0..)
            .map(move |(process, id)| Process { id, of, ..process })
    }

    fn server(&self, host: &Host, s: u32) -> Process {
        let rank = host.id * self.num_servers + s;
        let mut process = self.process(host, Role::Server, rank);
        process.port = u16::try_from(u32::from(host.port) + s).ok();
        let place = self.place_of(host, |places| &places.servers, s);
        process.cpus = place.map(|place| cpus::list(place.cpus.iter().copied()));
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
            server_threads(self.args, host, &self.here),
        );
        self.advice(&mut process, host);
        let place = self.place(host, rank, s);
        self.env.add_to(&mut process, &self.env.server, place);
        self.with_command(process, host, self.command.filled(place), &[])
    }

    /// A trainer or worker that is started directly, with what torch's launcher would give it.
    fn client(&self, host: &Host, of_host: HostShare, t: u32) -> Process {
        let rank = of_host.first + t;
        let place = self.place_of(host, |places| &places.clients, t);
        let mut process = self.client_process(host, of_host, rank, place);
        set(&mut process, "RANK", rank);
        set(&mut process, "LOCAL_RANK", t);
        set(&mut process, "WORLD_SIZE", self.world_size);
        set(&mut process, "LOCAL_WORLD_SIZE", of_host.count);
        set(&mut process, "GROUP_RANK", host.id);
        self.master_env(&mut process);
        let place = self.place(host, rank, t);
        self.add_advice(&mut process, host, place);
        // checked when the plan was made
        let command = self
            .local_rank_option(host)
            .and_then(|name| self.command.with_local_rank(name, t).ok());
        let command = command.unwrap_or_else(|| self.command.clone());
        let port = process.env.get("MASTER_PORT");
        process.master_port = port.and_then(|port| port.parse().ok());
        self.with_command(process, host, command.filled(place), &[])
    }

    /// The option that tells the script its local rank. The launcher of torch passes `--local-rank`
    /// from 2.0 on and `--local_rank` before. A script that checks its torch's version takes one
    /// and ignores the other (GraphStorm does): each trainer would then take the first GPU.
    fn local_rank_option(&self, host: &Host) -> Option<&str> {
        match self.args.local_rank_arg.as_ref()? {
            RankOption::Named(name) => Some(name),
            RankOption::AsTorch if check::at_least(&host.facts.torch, (2, 0, 0)) => {
                Some("--local-rank")
            }
            RankOption::AsTorch => Some("--local_rank"),
        }
    }

    /// A process of torch's launcher, which starts the trainers or workers of a host.
    fn torch(&self, host: &Host, of_host: HostShare) -> Process {
        let mut process = self.client_process(host, of_host, host.id, None);
        process.nproc = Some(of_host.count);
        process.master_port = Some(self.master_port);
        let place = self.place(host, host.id, 0);
        self.add_advice(&mut process, host, place);
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
        self.with_command(process, host, self.command.filled(place), &torch)
    }

    /// The settings that all trainers, or all workers, have in common, whoever starts them.
    fn client_process(
        &self,
        host: &Host,
        of_host: HostShare,
        rank: u32,
        place: Option<&Place>,
    ) -> Process {
        let role = match self.workers {
            true => Role::Worker,
            false => Role::Trainer,
        };
        let mut process = self.process(host, role, rank);
        process.cpus = place.map(|place| cpus::list(place.cpus.iter().copied()));
        if self.trainers {
            self.trainer_env(&mut process);
        }
        if self.counts_threads() {
            self.set_threads(&mut process, host, of_host, place);
        }
        process
    }

    /// Adds the settings of a trainer or worker that the user may override, and the user's own.
    fn add_advice(&self, process: &mut Process, host: &Host, place: ProcessPlace) {
        self.advice(process, host);
        let of_role = match self.workers {
            true => &self.env.worker,
            false => &self.env.trainer,
        };
        self.env.add_to(process, of_role, place);
    }

    /// Sets the command of a process, under torch's launcher if that has words, and what is known
    /// of it. If host-probe found an environment, its interpreter is used by path, whatever PATH
    /// will be.
    fn with_command(
        &self,
        mut process: Process,
        host: &Host,
        command: UserCommand,
        torch: &[OsString],
    ) -> Process {
        let Facts {
            prefix,
            python_path,
            ..
        } = &host.facts;
        let command = match python_path.as_ref().filter(|_| prefix.is_some()) {
            Some(python) => command.with_interpreter(python),
            None => command,
        };
        process.python = command.interpreter();
        // a setup that changes the folder leaves open where the script is
        let setup = self.args.setup.clone().map(UserCommand::Shell);
        let stays = setup.is_none_or(|setup| setup.stays());
        process.script = command.script_file().filter(|_| stays);
        let command = match torch {
            [] => command,
            // checked when the plan was made
            torch => command.under_torch(torch).unwrap_or(command),
        };
        match command {
            UserCommand::Words(words) => process.set_words(&words),
            UserCommand::Shell(text) => process.shell = Some(text),
        }
        process
    }

    fn place(&self, host: &Host, rank: u32, local_rank: u32) -> ProcessPlace {
        ProcessPlace {
            local_rank,
            rank,
            host: host.id,
            world_size: self.world_size,
            master_addr: self.hosts[0].ip.0,
            master_port: self.master_port,
        }
    }

    fn process(&self, host: &Host, role: Role, rank: u32) -> Process {
        Process {
            cwd: self.workspace.clone(),
            setup: self.args.setup.clone(),
            ..Process::new(0, host.id, host.ip, role, rank)
        }
    }

    /// Adds the settings that servers and trainers share.
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

    fn trainer_env(&self, process: &mut Process) {
        self.dgl_env(process);
        set(process, "DGL_ROLE", "client");
        set(process, "DGL_DIST_MODE", "distributed");
        // the servers' own hosts assign the numbers
        if self.args.server_name.is_none() {
            set(process, "DGL_GROUP_ID", self.args.group_id);
        }
    }

    fn set_threads(
        &self,
        process: &mut Process,
        host: &Host,
        of_host: HostShare,
        place: Option<&Place>,
    ) {
        let threads = match (self.launcher_omp(), self.args.num_omp_threads, place) {
            (Some(own), ..) => return process.set_env("OMP_NUM_THREADS", own),
            (None, None, Some(place)) => self.own_threads(place),
            _ => self.omp_threads(host.facts.cpus.unwrap_or(self.here.cpus), of_host.count),
        };
        set(process, "OMP_NUM_THREADS", threads);
    }

    fn master_env(&self, process: &mut Process) {
        set(process, "MASTER_ADDR", self.hosts[0].ip);
        // groups that start at the same moment would meet at one port: dgl-spawn gives each another
        if self.args.server_name.is_none() || self.args.master_port.is_some() {
            set(process, "MASTER_PORT", self.master_port);
        }
    }

    /// Adds the settings of every process that the user may override.
    fn advice(&self, process: &mut Process, host: &Host) {
        // lines appear when they are printed, and a crash or SIGABRT shows where the program was
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

    /// The launching machine's OMP_NUM_THREADS, unless a flag overrides it.
    fn launcher_omp(&self) -> Option<&OsString> {
        self.own_omp()
            .filter(|_| self.args.num_omp_threads.is_none())
    }

    /// The number of cores of a process that are not left to its samplers.
    fn own_threads(&self, place: &Place) -> u32 {
        place.cores.saturating_sub(self.args.num_samplers).max(1)
    }

    /// The threads of a trainer by launch.py's rule: half of the processors, which hyper-threads
    /// double, shared by the trainers.
    fn omp_threads(&self, cpus: u32, trainers: u32) -> u32 {
        self.args
            .num_omp_threads
            .unwrap_or((cpus / 2 / trainers).max(1))
    }
}

/// Where the processes of each host run, if they are to be bound.
fn bound(
    args: &Args,
    hosts: &[Host],
    crews: impl Iterator<Item = Crew>,
) -> Result<Vec<HostPlaces>, Report> {
    let Some(how) = args.bind else {
        return Ok(Vec::new());
    };
    let mut report = Report::default();
    if args.launcher != Launcher::Direct {
        let problem = "torch's launcher starts the trainers, so they cannot be bound one by one";
        report.push(Fault::usage("--bind", problem).fix("take --launcher direct"));
    }
    let unknown = hosts.iter().filter(|host| host.facts.numa_cores.is_empty());
    report.0.extend(unknown.map(|host| {
        let problem = "--bind: its CPU topology is unknown";
        Fault::data(host.place(), problem).fix("put host-probe before dgl-env")
    }));
    report.check()?;
    let of_host = |(host, crew): (&Host, Crew)| bind::places(&host.facts.numa_cores, crew, how);
    Ok(hosts.iter().zip(crews).map(of_host).collect())
}

/// The number of threads of each server of a host. With auto, the servers share a quarter of the
/// host's processors; GraphStorm's launcher does the same, but with the processors of the machine
/// on which it runs.
fn server_threads(args: &Args, host: &Host, here: &LauncherFacts) -> u32 {
    let cpus = host.facts.cpus.unwrap_or(here.cpus);
    match args.num_server_threads {
        ServerThreads::Number(threads) => threads,
        ServerThreads::Auto => (cpus / 4 / u32::from(args.num_servers)).max(1),
    }
}

/// The trainers, or workers, of each host.
fn of_hosts(
    option: &'static str,
    count: Option<&PerHost>,
    hosts: &[Host],
) -> Result<Vec<HostShare>, Report> {
    let counts = match count {
        None => vec![1; hosts.len()],
        Some(count) => count.counts(option, hosts)?,
    };
    let mut first = 0;
    let of_host = |count: u32| {
        first += count;
        HostShare {
            count,
            first: first - count,
        }
    };
    Ok(counts.into_iter().map(of_host).collect())
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
        let env = UserEnv::new(&args.env_given(), &|_| Some("from here".into())).map_err(faults)?;
        let said = Said {
            graph,
            workspace: None,
        };
        let plan = Plan::new(&args, command, hosts, said, env, here).map_err(faults)?;
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

    #[expect(
        clippy::too_many_lines,
        reason = "one plan shows each variable of the environment"
    )]
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
        assert_eq!(omp("--num-server-threads auto", None), pair("4", "4"));
        assert_eq!(
            omp("--num-server-threads auto --num-servers 8", None),
            pair("1", "1"),
            "never none; the second process is a server too"
        );
        let none = plan(
            "--num-server-threads 0 --num-trainers 2 -- t",
            hosts(1),
            Some(graph(1)),
            LauncherFacts::default(),
        );
        assert!(none.unwrap_err()[0].contains("neither a number from 1 on nor auto"));
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

    /// What a process has under the names that a test asks for.
    fn shown(process: &Process, names: &[&str]) -> String {
        let values: Vec<_> = names.iter().map(|name| env(process, name)).collect();
        values.join(" ")
    }

    const OF_TORCH: [&str; 8] = [
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "OMP_NUM_THREADS",
    ];

    #[test]
    fn several_workers_a_host_have_what_torch_wants() {
        let mut two = hosts(2);
        for host in &mut two {
            host.facts.cpus = Some(16);
            host.facts.iface = Some("eth1".into());
            host.facts.gpus = Some(4 - host.id);
        }
        let plan = |line: &str| plan(line, two.clone(), None, LauncherFacts::default()).unwrap();
        let all = plan("--role worker --num-workers 2 --worker-env G={local_rank} -- python3 t.py");
        let seen: Vec<_> = all
            .iter()
            .map(|process| shown(process, &OF_TORCH))
            .collect();
        assert_eq!(
            seen,
            [
                "0 0 4 2 0 10.0.0.1 29500 4",
                "1 1 4 2 0 10.0.0.1 29500 4",
                "2 0 4 2 1 10.0.0.1 29500 4",
                "3 1 4 2 1 10.0.0.1 29500 4",
            ]
        );
        assert!(all.iter().all(|process| process.role == Role::Worker
            && env(process, "GLOO_SOCKET_IFNAME") == "eth1"
            && env(process, "DGL_ROLE") == "-"
            && process.of == 4));
        assert_eq!((all[3].host, all[3].rank, env(&all[3], "G")), (1, 3, "1"));

        let unequal = plan("--role worker --num-workers gpus --num-omp-threads 3 -- t");
        let last = shown(&unequal[6], &OF_TORCH);
        assert_eq!(
            (unequal.len(), last.as_str()),
            (7, "6 2 7 3 1 10.0.0.1 29500 3")
        );

        let alone = plan("--role worker -- df -h");
        let second = shown(&alone[1], &OF_TORCH);
        assert_eq!(
            second, "1 0 2 1 1 10.0.0.1 29500 -",
            "its host's threads are its own"
        );

        let torchrun = plan("--role worker --num-workers 2 --launcher torchrun -- python3 t.py -x");
        let second = &torchrun[1];
        assert_eq!(
            (
                torchrun.len(),
                second.nproc,
                second.rank,
                env(second, "RANK")
            ),
            (2, Some(2), 1, "-")
        );
        assert_eq!(
            words(second),
            "python3 -m torch.distributed.run --nproc_per_node=2 --nnodes=2 --node_rank=1 \
             --master_addr=10.0.0.1 --master_port=29500 t.py -x"
        );
    }

    #[test]
    fn words_of_the_command_have_placeholders() {
        let line = "--role worker --num-workers 2 --master-port 4000 -- t {rank} {local_rank} \
            {host} {world_size} tcp://{master_addr}:{master_port} {\"rank\":1} {{rank}} ${rank}";
        let all = plan(line, hosts(2), None, LauncherFacts::default()).unwrap();
        assert_eq!(
            words(&all[3]),
            "t 3 1 1 4 tcp://10.0.0.1:4000 {\"rank\":1} {rank} ${rank}"
        );
        let line = "--num-trainers 2 -- python3 t.py --r={rank}";
        let all = plan(line, hosts(2), Some(graph(2)), LauncherFacts::default()).unwrap();
        let seen: Vec<_> = [1, 5].map(|id| words(&all[id])).to_vec();
        assert_eq!(seen, ["python3 t.py --r=1", "python3 t.py --r=3"]);
        let line = "--launcher torchrun --num-trainers 2 -- python3 t.py {host} {world_size}";
        let all = plan(line, hosts(2), Some(graph(2)), LauncherFacts::default()).unwrap();
        assert!(words(&all[3]).ends_with(" t.py 1 4"), "{}", words(&all[3]));
    }

    #[test]
    fn the_local_rank_is_called_as_the_torch_of_the_host_calls_it() {
        let mut two = hosts(2);
        two[0].facts.torch = Some("2.2.1+cpu".into());
        two[1].facts.torch = Some("1.13.1".into());
        let last = |flag: &str, id: usize| {
            let line = format!("{flag} --num-trainers 2 -- python3 t.py -x");
            let all = plan(&line, two.clone(), Some(graph(2)), LauncherFacts::default());
            words(&all.unwrap()[id])
        };
        let table = [
            ("--local-rank-arg", 3, "python3 t.py --local-rank=1 -x"),
            ("--local-rank-arg", 5, "python3 t.py --local_rank=1 -x"),
            ("--local-rank-arg=gpu", 5, "python3 t.py --gpu=1 -x"),
            (
                "--local-rank-arg=--my_rank",
                3,
                "python3 t.py --my_rank=1 -x",
            ),
            ("--local-rank-arg=-r", 3, "python3 t.py -r=1 -x"),
        ];
        for (flag, id, wanted) in table {
            assert_eq!(last(flag, id), wanted, "{flag}");
        }
        let line = "--role worker --num-workers 2 --local-rank-arg -- python3 t.py";
        let workers = plan(line, two.clone(), None, LauncherFacts::default()).unwrap();
        assert_eq!(words(&workers[1]), "python3 t.py --local-rank=1");
        for wrong in ["--local-rank-arg=--", "--local-rank-arg=a;b"] {
            let line = format!("{wrong} --num-trainers 1 -- t");
            let refused = plan(&line, two.clone(), Some(graph(2)), LauncherFacts::default());
            assert!(
                refused.unwrap_err()[0].contains("--local-rank-arg"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn as_many_trainers_as_gpus() {
        let mut two = hosts(2);
        two[0].facts.gpus = Some(2);
        let trainers = |hosts: &[Host]| {
            plan(
                "--num-trainers gpus -- t",
                hosts.to_vec(),
                Some(graph(2)),
                LauncherFacts::default(),
            )
        };
        let refused = |hosts: &[Host]| trainers(hosts).unwrap_err().join("; ");
        assert!(
            refused(&two).contains("host 1 (10.0.0.2): --num-trainers gpus: nobody counted"),
            "{}",
            refused(&two)
        );
        two[1].facts.gpus = Some(0);
        assert!(refused(&two).contains("has no GPU"), "{}", refused(&two));
        two[1].facts.gpus = Some(4_000_000_000);
        assert!(refused(&two).contains("more than any machine has"));
        two[1].facts.gpus = Some(1);
        let all = trainers(&two).unwrap();
        let ranks: Vec<_> = all[2..]
            .iter()
            .map(|trainer| {
                (
                    trainer.host,
                    env(trainer, "RANK"),
                    env(trainer, "WORLD_SIZE"),
                )
            })
            .collect();
        assert_eq!(ranks, [(0, "0", "3"), (0, "1", "3"), (1, "2", "3")]);

        let told = |counts: &[u32]| check::more_than_gpus(&two, counts).unwrap_or_default();
        assert_eq!(told(&[2, 1]), "");
        let one = told(&[2, 3]);
        assert!(
            one.starts_with("host 1 (10.0.0.2) has 1 GPU for 3 processes: "),
            "{one}"
        );
        let both = told(&[3, 3]);
        assert!(
            both.starts_with("host 0 (10.0.0.1) has 2 GPUs for 3 processes, and 1 more host too"),
            "{both}"
        );
        two[0].facts.gpus = Some(0);
        assert_eq!(
            check::more_than_gpus(&two, &[8, 1]),
            None,
            "training on processors"
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

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
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
                "--role worker --num-workers 2 -- torchrun t.py -x",
                None,
                "COMMAND: starts torch's launcher itself, whose processes the plan does not \
                 know\n  fix: give what it starts: python3 t.py -x",
            ),
            (
                "--role worker -- python3 -m graphstorm.run.gs_link_prediction --cf c.yaml",
                None,
                "python3 -m graphstorm.run.gsgnn_lp.gsgnn_lp --cf c.yaml",
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
                "\"0\" is not a number from 1 to 1024, nor gpus",
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
                "--role worker --num-trainers 2 -- t",
                None,
                "--num-trainers: is not for workers\n  fix: say --num-workers",
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
