//! The processes of a job.
//!
//! Their environment is that of DGL's launch.py, the union of all its versions: a version ignores
//! variables that it does not know (dgl-env(1) lists which version reads which). Deliberate
//! differences:
//! - `PYTHONUNBUFFERED` and `PYTHONFAULTHANDLER` are set, and each host's network interface for
//!   gloo, tensorpipe and NCCL.
//! - Trainers always get OMP_NUM_THREADS (launch.py from 0.6.1 on), from their own host's
//!   processors, and servers the PYTHONPATH (launch.py from 0.7.2 on). `--num-omp-threads` takes
//!   precedence over this machine's OMP_NUM_THREADS; in launch.py it is the other way round.
//! - launch.py of 0.6.1 takes 0 for `--num_samplers` under Python 3.8 or later; here that is a
//!   warning.
//! - Values and words arrive as given; with launch.py, the host's shell interprets them again.

use crate::args::{Args, RankOption, ServerThreads};
use crate::bind::{self, Binding, HostBindings, ProcessCounts};
use crate::check;
use crate::command::UserCommand;
use crate::dgl;
use crate::environment::UserEnv;
use crate::graphstorm;
use crate::paths::{JobPaths, StreamFacts};
use crate::placeholders::{Placeholder, PlaceholderValues, ProgramFacts, Template};
use crate::programs::{self, Earlier, Place, Program};
use record::cpus;
use record::error::{Fault, Report};
use record::jsonl::MAX_SET;
use record::python;
use record::{Host, Process, Role};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The PATH if host-probe did not find it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Default)]
pub struct LaunchMachine {
    pub cpus: u32,
    /// launch.py passes it on unless it is empty.
    pub omp_num_threads: Option<OsString>,
    pub pythonpath: Option<OsString>,
}

/// NCCL's flight recorder: how many operations it records, whether it writes them, and into which
/// files. Each variable has its old name, which all versions of torch read, and its name since
/// torch 2.8, which takes precedence and warns about the old one.
const FLIGHT_RECORDER: [[&str; 2]; 3] = [
    ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"],
    ["TORCH_NCCL_DUMP_ON_TIMEOUT", DUMP_ON_TIMEOUT],
    ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"],
];
/// Torch 2.9 does not know this variable yet.
const DUMP_ON_TIMEOUT: &str = "TORCH_FR_DUMP_ON_TIMEOUT";

pub struct ProgramPlan<'a> {
    args: &'a Args,
    hosts: Vec<Host>,
    servers: Program,
    /// DGL's trainers, or plain processes.
    clients: Program,
    earlier: Earlier,
    own: ProgramFacts,
    /// Whether dgl-spawn replaces a placeholder.
    has_attempt: bool,
    /// Whether a graph record lists the hosts' files.
    has_graph: bool,
    /// By host, if processes are bound.
    bindings: Vec<HostBindings>,
    /// DGL's trainers and samplers.
    num_clients: u64,
    paths: JobPaths,
    command: UserCommand,
    setup: Option<Template>,
    env: UserEnv,
    launch_machine: LaunchMachine,
}

impl<'a> ProgramPlan<'a> {
    /// Checks all that can be checked before a process is planned.
    pub fn new(
        args: &'a Args,
        command: UserCommand,
        hosts: Vec<Host>,
        stream: StreamFacts,
        env: UserEnv,
        launch_machine: LaunchMachine,
    ) -> Result<ProgramPlan<'a>, Report> {
        let setup = args.setup.as_ref();
        let setup = setup.map(|setup| Template::of_word(setup.as_bytes()));
        let words: Vec<Template> = command.templates().collect();
        let texts: Vec<&Template> = words.iter().chain(env.templates()).chain(&setup).collect();
        let of_texts = texts.iter().copied().flat_map(Template::placeholders);
        let placeholders: BTreeSet<Placeholder> = of_texts.cloned().collect();
        let has_attempt = placeholders.contains(&Placeholder::Attempt);
        let mut report = Report(check::flags(args));
        report.0.extend(check::attempt(has_attempt, &texts));
        report
            .0
            .extend(check::hosts(&hosts, args.num_servers.into()));
        report.0.extend(programs::faults(
            args,
            &env,
            &hosts,
            &stream.earlier,
            &placeholders,
        ));
        let hosts = report
            .keep(programs::chosen(&args.on, hosts))
            .unwrap_or_default();
        report.0.extend(check::interpreter(&hosts, &command));
        report
            .0
            .extend(dgl::faults(args, &hosts, stream.graph.as_ref()));
        let paths = report.keep(JobPaths::new(args, &stream, &hosts));

        let counts = report
            .keep(programs::client_counts(args, &hosts))
            .unwrap_or_default();
        report
            .0
            .extend(check::command(args, &hosts, &counts, &command));
        let world_size = counts.iter().sum();
        let num_clients = u64::from(world_size) * u64::from(1 + args.num_samplers);
        report.0.extend(dgl::too_many_clients(num_clients));
        let ports = programs::ports(args, &hosts, &stream.earlier, &placeholders);
        let own = ProgramFacts::new(&hosts, world_size, report.keep(ports).unwrap_or_default());
        let servers = vec![args.num_servers.into(); hosts.len()];
        let mut plan = ProgramPlan {
            args,
            hosts,
            servers: Program::new(args, Role::Server, servers),
            clients: Program::new(args, args.client_role(), counts),
            earlier: stream.earlier,
            own,
            has_attempt,
            has_graph: stream.graph.is_some(),
            bindings: Vec::new(),
            num_clients,
            paths: paths.unwrap_or_default(),
            command,
            setup,
            env,
            launch_machine,
        };
        plan.bindings = report.keep(plan.bound()).unwrap_or_default();
        report.0.extend(plan.too_many());
        report.check()?;
        Ok(plan)
    }

    fn too_many(&self) -> Option<Fault> {
        let all = u64::from(self.earlier.num_processes) + self.num_processes();
        let problem = format!("{all} processes are more than a stream can hold ({MAX_SET})");
        (all > u64::from(MAX_SET))
            .then(|| Fault::data("stdin", problem).fix("use fewer servers, trainers or hosts"))
    }

    fn bound(&self) -> Result<Vec<HostBindings>, Report> {
        let Some(how) = self.args.bind else {
            return Ok(Vec::new());
        };
        let faults = self
            .hosts
            .iter()
            .filter(|host| host.facts.numa_cores.is_empty())
            .map(|host| {
                let problem = "--bind: its CPU topology is unknown";
                Fault::data(host.location(), problem).fix("put host-probe before dgl-env")
            });
        Report(faults.collect()).check()?;
        let of_host = |(host_index, host): (usize, &Host)| {
            let counts = ProcessCounts {
                servers: self.servers.count(host_index),
                server_cores: self.server_threads(host),
                clients: self.clients.count(host_index),
            };
            bind::bindings(&host.facts.numa_cores, counts, how)
        };
        Ok(self.hosts.iter().enumerate().map(of_host).collect())
    }

    pub fn num_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Where the partition config may be on this machine. If a graph record lists the hosts' files,
    /// an older file here proves nothing.
    pub fn config_here(&self) -> Option<PathBuf> {
        if self.has_graph {
            return None;
        }
        Some(Path::new(self.paths.workspace.as_ref()?).join(self.paths.part_config.as_ref()?))
    }

    pub fn warnings(&self) -> Vec<String> {
        let (args, hosts) = (self.args, &self.hosts);
        let spells_as_torch = args.local_rank_arg == Some(RankOption::AsTorch);
        let workspace = self.paths.workspace.as_deref();
        let mut warnings: Vec<Option<String>> = vec![
            self.omp_warning(),
            self.crowded(),
            check::unknown_torch(hosts).filter(|_| spells_as_torch),
            check::more_than_gpus(hosts, &self.clients.counts),
            graphstorm::own_disks(&self.command, workspace, hosts),
            self.iface_warning(),
            self.one_word_warning(),
        ];
        warnings.extend(dgl::warnings(args, hosts, &self.clients.counts));
        warnings.into_iter().flatten().collect()
    }

    /// Names the source of the trainers' number of threads, if it may surprise.
    fn omp_warning(&self) -> Option<String> {
        let Program { role, counts, .. } = &self.clients;
        if counts.is_empty() || self.env.sets(*role, "OMP_NUM_THREADS") {
            return None;
        }
        match (
            self.args.num_omp_threads,
            &self.launch_machine.omp_num_threads,
        ) {
            (Some(threads), Some(own)) if *own != *threads.to_string() => Some(format!(
                "--num-omp-threads {threads} is used, not OMP_NUM_THREADS={}, which is set here",
                own.to_string_lossy()
            )),
            (None, None) => {
                let (host, count) = self
                    .hosts
                    .iter()
                    .zip(counts)
                    .find(|(host, _)| host.facts.cpus.is_none())?;
                let threads = self.omp_num_threads(host, *role, *count, None)?;
                Some(format!(
                    "OMP_NUM_THREADS={} comes from this machine's {} processors; put host-probe \
                     before dgl-env to count the hosts', or use --num-omp-threads",
                    threads.to_string_lossy(),
                    self.launch_machine.cpus
                ))
            }
            _ => None,
        }
    }

    /// Warns about a host with more processes than cores, for all such hosts.
    fn crowded(&self) -> Option<String> {
        let (host, bindings) = self
            .hosts
            .iter()
            .zip(&self.bindings)
            .find(|(_, bindings)| bindings.is_crowded)?;
        Some(format!(
            "--bind cores: {} has {} servers and trainers on fewer cores, so some share one",
            host.location(),
            bindings.servers.len() + bindings.clients.len()
        ))
    }

    fn iface_warning(&self) -> Option<String> {
        let is_known = self.hosts.iter().all(|host| host.facts.iface.is_some());
        let is_fine = is_known || self.hosts.len() < 2;
        let is_fine = is_fine || self.env.sets(self.clients.role, "GLOO_SOCKET_IFNAME");
        (!is_fine).then(|| {
            "gloo may choose the wrong network interface; put host-probe before dgl-env to name \
             the right one"
                .to_owned()
        })
    }

    fn one_word_warning(&self) -> Option<String> {
        match &self.command {
            UserCommand::Words(words)
                if words.len() == 1 && words[0].as_bytes().contains(&b' ') =>
            {
                let word = words[0].to_string_lossy();
                Some(format!(
                    "{word:?} is taken for the name of one program; leave out -- to have the \
                     hosts' shell read it"
                ))
            }
            _ => None,
        }
    }

    /// Includes the processes that were planned before.
    pub fn num_processes_of_job(&self) -> u32 {
        // checked when the plan was made
        let own = u32::try_from(self.num_processes()).unwrap_or(MAX_SET);
        self.earlier.num_processes.saturating_add(own)
    }

    fn num_processes(&self) -> u64 {
        self.servers
            .counts
            .iter()
            .chain(&self.clients.counts)
            .map(|count| u64::from(*count))
            .sum()
    }

    /// One process at a time, because the records of 10,000 hosts do not fit into memory.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let of = self.num_processes_of_job();
        [&self.servers, &self.clients]
            .into_iter()
            .flat_map(|program| program.places().map(move |place| (program, place)))
            .map(|(program, place)| self.process(program, place))
            .zip(self.earlier.num_processes..)
            .map(move |(process, id)| Process { id, of, ..process })
    }

    fn process(&self, program: &Program, place: Place) -> Process {
        let args = self.args;
        let (role, rank) = (program.role, place.rank);
        let host = &self.hosts[place.host_index];
        let binding = self.binding(role, place);
        let mut process = Process {
            cwd: self.paths.workspace.clone(),
            service: args.service,
            ports: self.own.ports.clone().into_iter().collect(),
            server_name: args.server_name.clone(),
            attempt: self.has_attempt,
            cpus: binding.map(|binding| cpus::list(binding.cpus.iter().copied())),
            ..Process::new(0, host.id, host.ip, role, rank)
        };
        let values = PlaceholderValues {
            local_rank: place.local_rank,
            rank,
            host: host.id,
            own: &self.own,
            others: &self.earlier.programs,
        };
        process.setup = self
            .setup
            .as_ref()
            .map(|setup| setup.fill(values).into_string().unwrap_or_default());
        for (name, value) in dgl::variables(role, args, &self.paths, self.num_clients) {
            set(&mut process, name, value);
        }
        let count = program.count(place.host_index);
        if let Some(threads) = self.omp_num_threads(host, role, count, binding) {
            process.set_env("OMP_NUM_THREADS", &threads);
        }
        if role == Role::Server {
            set(&mut process, "DGL_SERVER_ID", rank);
            process.port = u16::try_from(u32::from(host.port) + place.local_rank).ok();
        } else {
            self.set_torch_env(&mut process, place, count);
            self.set_flight_recorder(&mut process, host);
        }
        self.set_overridable(&mut process, host);
        for (name, value) in self.env.of(role) {
            process.set_env(name, &value.fill(values));
        }
        if role != Role::Server {
            let port = process.env.get("MASTER_PORT");
            process.master_port = port.and_then(|port| port.parse().ok());
        }
        self.set_command(&mut process, host, values);
        process
    }

    fn binding(&self, role: Role, place: Place) -> Option<&Binding> {
        let bindings = self.bindings.get(place.host_index)?;
        let of_role = match role {
            Role::Server => &bindings.servers,
            _ => &bindings.clients,
        };
        of_role.get(usize::try_from(place.local_rank).ok()?)
    }

    /// Sets what torch's launcher would give a trainer or worker.
    fn set_torch_env(&self, process: &mut Process, place: Place, count: u32) {
        set(process, "RANK", place.rank);
        set(process, "LOCAL_RANK", place.local_rank);
        set(process, "WORLD_SIZE", self.own.world_size);
        set(process, "LOCAL_WORLD_SIZE", count);
        set(process, "GROUP_RANK", place.host_index);
        set(process, "MASTER_ADDR", self.own.master_addr);
        if let Some(port) = self.own.master_port {
            set(process, "MASTER_PORT", port);
        }
    }

    /// Sets variables that the user may override.
    fn set_overridable(&self, process: &mut Process, host: &Host) {
        let facts = &host.facts;
        // lines appear when they are printed, and a crash or SIGABRT shows where the program was
        set(process, "PYTHONUNBUFFERED", 1);
        set(process, "PYTHONFAULTHANDLER", 1);
        if let Some(path) = &self.launch_machine.pythonpath {
            process.set_env("PYTHONPATH", path);
        }
        if let Some(iface) = &facts.iface {
            set(process, "GLOO_SOCKET_IFNAME", iface);
            set(process, "TP_SOCKET_IFNAME", iface);
            // NCCL matches prefixes without the equals sign
            set(process, "NCCL_SOCKET_IFNAME", format!("={iface}"));
        }
        // as activating the environment does
        if let Some(prefix) = &facts.prefix {
            let path = facts.path.as_deref().unwrap_or(USUAL_PATH);
            for (name, value) in python::activation(prefix, facts.conda_env.as_deref(), path) {
                set(process, name, value);
            }
        }
    }

    /// Has torch write the records of NCCL's flight recorder into the workspace when NCCL times out
    /// on GPUs. Torch 2.8 warns about the old names.
    fn set_flight_recorder(&self, process: &mut Process, host: &Host) {
        let folder = self.paths.workspace.as_ref();
        let Some(folder) = folder.filter(|_| host.facts.gpus > Some(0)) else {
            return;
        };
        let program = match process.role {
            role @ Role::Program(_) => format!("{}_", role.name()),
            _ => String::new(),
        };
        let prefix = format!("{}/{program}nccl_trace_rank_", folder.trim_end_matches('/'));
        let is_new = check::is_within(&host.facts.torch, (2, 8, 0)..);
        let values = ["2000", "1", &prefix];
        for ([old, new], value) in FLIGHT_RECORDER.into_iter().zip(values) {
            let is_set = [old, new].map(|name| self.env.sets(process.role, name));
            if is_set == [false; 2] {
                let has_new = is_new && new != DUMP_ON_TIMEOUT;
                set(process, if has_new { new } else { old }, value);
            }
        }
    }

    /// Sets the command of a process and the facts about it. The interpreter of an environment that
    /// host-probe found is used by path, independently of PATH.
    fn set_command(&self, process: &mut Process, host: &Host, values: PlaceholderValues<'_>) {
        let python = host.facts.python_path.as_ref();
        let mut command = self.command.filled(values);
        if let Some(python) = python.filter(|_| host.facts.prefix.is_some()) {
            command = command.with_interpreter(python);
        }
        process.python = command.interpreter();
        // if the setup changes the directory, the script's path is unknown
        let setup = process.setup.clone().map(UserCommand::Shell);
        if setup.is_none_or(|setup| setup.stays()) {
            process.script = command.script_file();
        }
        let inserted = match self.local_rank_option(host) {
            Some(name) if process.role != Role::Server => {
                command.with_local_rank(name, values.local_rank)
            }
            _ => Ok(command.clone()),
        };
        // checked when the plan was made
        match inserted.unwrap_or(command) {
            UserCommand::Words(words) => process.set_words(&words),
            UserCommand::Shell(text) => process.shell = Some(text),
        }
    }

    /// The option that gives the script its local rank. Torch's launcher passes `--local-rank` from
    /// 2.0 on and `--local_rank` before. A script that checks its torch's version ignores the other
    /// one (GraphStorm does): each trainer would then take the first GPU.
    fn local_rank_option(&self, host: &Host) -> Option<&str> {
        match self.args.local_rank_arg.as_ref()? {
            RankOption::Named(name) => Some(name),
            RankOption::AsTorch if check::is_within(&host.facts.torch, (2, 0, 0)..) => {
                Some("--local-rank")
            }
            RankOption::AsTorch => Some("--local_rank"),
        }
    }

    /// A worker that is alone on its host and was not counted may be anything, and may use the
    /// whole host.
    fn omp_num_threads(
        &self,
        host: &Host,
        role: Role,
        count: u32,
        binding: Option<&Binding>,
    ) -> Option<OsString> {
        let args = self.args;
        let is_counted = args.num_trainers.is_some() || args.num_omp_threads.is_some();
        let own = self.launch_machine.omp_num_threads.as_ref();
        let threads = match (role, args.num_omp_threads, own, binding) {
            (Role::Server, ..) => self.server_threads(host),
            (role, ..) if !role.is_dgl() && !is_counted => return None,
            (_, Some(threads), ..) => threads,
            (_, None, Some(own), _) => return Some(own.clone()),
            // the cores that are not left to its samplers
            (_, None, None, Some(binding)) => binding.cores.saturating_sub(args.num_samplers),
            // launch.py's rule: half of the processors, which hyper-threads double
            (_, None, None, None) => {
                host.facts.cpus.unwrap_or(self.launch_machine.cpus) / 2 / count
            }
        };
        Some(threads.max(1).to_string().into())
    }

    /// The threads of each server of a host. With auto, the servers share a quarter of the host's
    /// processors; GraphStorm's launcher counts those of its own machine instead.
    fn server_threads(&self, host: &Host) -> u32 {
        let cpus = host.facts.cpus.unwrap_or(self.launch_machine.cpus);
        match self.args.num_server_threads {
            ServerThreads::Number(threads) => threads,
            ServerThreads::Auto => (cpus / 4 / u32::from(self.args.num_servers)).max(1),
        }
    }
}

fn set(process: &mut Process, name: &str, value: impl Display) {
    process.set_env(name, value.to_string().as_ref());
}
