//! The processes of a job.
//!
//! Their environment is that of DGL's launch.py, the union of all its versions: a version ignores a
//! variable that it does not know (which reads which, dgl-env(1) says). On purpose different:
//! - `PYTHONUNBUFFERED` and `PYTHONFAULTHANDLER` are set, and each host's network interface for
//!   gloo, tensorpipe and NCCL.
//! - Trainers always get OMP_NUM_THREADS (launch.py from 0.6.1 on), from their own host's
//!   processors, and servers the PYTHONPATH (launch.py from 0.7.2 on). `--num-omp-threads` beats
//!   this machine's OMP_NUM_THREADS, which beats it in launch.py.
//! - 0.6.1's launch.py takes 0 for `--num_samplers` where it runs under Python 3.8 or later; here
//!   that is a warning.
//! - Values and words arrive as they were given; launch.py has the host's shell read them again.

use crate::args::{Args, RankOption, ServerThreads};
use crate::bind::{self, Binding, HostBindings, ProcessCounts};
use crate::check;
use crate::command::UserCommand;
use crate::dgl;
use crate::environment::UserEnv;
use crate::graphstorm;
use crate::hidden_status;
use crate::paths::{JobPaths, StreamFacts};
use crate::placeholders::{Placeholder, PlaceholderValues, ProgramFacts, Template};
use crate::programs::{self, Earlier, Place, Program};
use record::cpus;
use record::error::{Fault, Report};
use record::jsonl::MAX_SET;
use record::python;
use record::{ATTEMPT, Host, Process, Role};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The value of PATH if host-probe did not find it.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The facts that the plan needs about the machine on which it is made.
#[derive(Default)]
pub struct LaunchMachine {
    /// The number of processors.
    pub cpus: u32,
    /// The value of OMP_NUM_THREADS, which launch.py passes on unless it is empty.
    pub omp_num_threads: Option<OsString>,
    /// The value of PYTHONPATH, likewise.
    pub pythonpath: Option<OsString>,
}

/// The variables of NCCL's flight recorder: how many operations it notes, whether it writes them,
/// and into which files. Each with its first name, which all versions of torch read, and that of
/// torch 2.8 on, which beats the first and warns about it.
const FLIGHT_RECORDER: [[&str; 2]; 3] = [
    ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"],
    ["TORCH_NCCL_DUMP_ON_TIMEOUT", DUMP_ON_TIMEOUT],
    ["TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE"],
];
/// Torch 2.9 does not know this one yet.
const DUMP_ON_TIMEOUT: &str = "TORCH_FR_DUMP_ON_TIMEOUT";

/// The plan of the programs of one command line.
pub struct ProgramPlan<'a> {
    args: &'a Args,
    /// Those on which the programs run.
    hosts: Vec<Host>,
    /// DGL's graph servers.
    servers: Program,
    /// DGL's trainers, or plain processes.
    clients: Program,
    /// What was planned before.
    earlier: Earlier,
    /// What placeholders of these programs stand for.
    own: ProgramFacts,
    /// Whether dgl-spawn replaces a placeholder.
    has_attempt: bool,
    /// Whether a graph record says what the hosts have.
    has_graph: bool,
    /// Where the processes of each host run, if they are bound.
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
    /// Checks everything that can be checked before a process is planned.
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
        let texts = words.iter().chain(env.templates()).chain(&setup);
        let placeholders: BTreeSet<Placeholder> =
            texts.flat_map(Template::placeholders).cloned().collect();
        let mut report = Report(check::flags(args));
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

        let counts = report.keep(programs::client_counts(args, &hosts));
        let counts = counts.unwrap_or_default();
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
            has_attempt: placeholders.contains(&Placeholder::Attempt),
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

    /// The fault of more processes than a job may have.
    fn too_many(&self) -> Option<Fault> {
        let all = u64::from(self.earlier.num_processes) + self.num_processes();
        let problem = format!("{all} processes are more than a stream can hold ({MAX_SET})");
        (all > u64::from(MAX_SET))
            .then(|| Fault::data("stdin", problem).fix("take fewer servers, trainers or hosts"))
    }

    /// Where the processes of each host run, if they are to be bound.
    fn bound(&self) -> Result<Vec<HostBindings>, Report> {
        let Some(how) = self.args.bind else {
            return Ok(Vec::new());
        };
        let unknown = |host: &&Host| host.facts.numa_cores.is_empty();
        let faults = self.hosts.iter().filter(unknown).map(|host| {
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

    /// How many hosts the job has.
    pub fn num_hosts(&self) -> usize {
        self.hosts.len()
    }

    /// The path at which the partition config may be on this machine too. Where a graph record says
    /// what the hosts have, an older file here proves nothing.
    pub fn config_here(&self) -> Option<PathBuf> {
        if self.has_graph {
            return None;
        }
        Some(Path::new(self.paths.workspace.as_ref()?).join(self.paths.part_config.as_ref()?))
    }

    /// What the user should know although it is no error.
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
            self.hidden_status_warning(),
        ];
        warnings.extend(dgl::warnings(args, hosts, &self.clients.counts));
        warnings.into_iter().flatten().collect()
    }

    /// A warning about the source of the trainers' number of threads, where it may surprise.
    fn omp_warning(&self) -> Option<String> {
        let Program { role, counts, .. } = &self.clients;
        if counts.is_empty() || self.env.sets(*role, "OMP_NUM_THREADS") {
            return None;
        }
        let unknown = |(host, _): &(&Host, &u32)| host.facts.cpus.is_none();
        match (
            self.args.num_omp_threads,
            &self.launch_machine.omp_num_threads,
        ) {
            (Some(threads), Some(own)) if *own != *threads.to_string() => Some(format!(
                "--num-omp-threads {threads} is taken, not OMP_NUM_THREADS={}, which is set here",
                own.to_string_lossy()
            )),
            (None, None) => {
                let (host, count) = self.hosts.iter().zip(counts).find(unknown)?;
                let threads = self.omp_num_threads(host, *role, *count, None)?;
                Some(format!(
                    "OMP_NUM_THREADS={} comes from this machine's {} processors; put host-probe \
                     before dgl-env to take the hosts', or say --num-omp-threads",
                    threads.to_string_lossy(),
                    self.launch_machine.cpus
                ))
            }
            _ => None,
        }
    }

    /// A warning about a host with more processes than cores; one stands for all such hosts.
    fn crowded(&self) -> Option<String> {
        let mut bound = self.hosts.iter().zip(&self.bindings);
        let (host, bindings) = bound.find(|(_, bindings)| bindings.is_crowded)?;
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

    /// A warning about shell text that hides the status of its program. The setup runs in the same
    /// shell, and may set options of it.
    fn hidden_status_warning(&self) -> Option<String> {
        let text = self.command.shell_text()?;
        let setup = match &self.command {
            UserCommand::Shell(_) => self.args.setup.as_deref().unwrap_or_default(),
            UserCommand::Words(_) => "",
        };
        hidden_status::warning(&format!("{setup}\n{text}"))
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

    /// The number of processes of the job, with those that were planned before.
    pub fn of(&self) -> u32 {
        // checked when the plan was made
        let own = u32::try_from(self.num_processes()).unwrap_or(MAX_SET);
        self.earlier.num_processes.saturating_add(own)
    }

    fn num_processes(&self) -> u64 {
        let counts = self.servers.counts.iter().chain(&self.clients.counts);
        counts.map(|count| u64::from(*count)).sum()
    }

    /// Every process, one at a time, because a job of 10,000 hosts does not fit into memory as
    /// records.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let of = self.of();
        [&self.servers, &self.clients]
            .into_iter()
            .flat_map(|program| program.places().map(move |place| (program, place)))
            .map(|(program, place)| self.process(program, place))
            .zip(self.earlier.num_processes..)
            .map(move |(process, id)| Process { id, of, ..process })
    }

    /// A process at its place in a program, with what dgl-spawn replaces in it.
    fn process(&self, program: &Program, place: Place) -> Process {
        let planned = |attempt: &str| self.process_with(program, place, attempt);
        if !self.has_attempt {
            return planned(ATTEMPT);
        }
        // `${attempt}`, `{{attempt}}` and values of this environment are literal
        let rest = planned("");
        // the command is there: the plan has just set it
        let text = rest.unused_attempt_text().unwrap_or_default();
        Process {
            attempt: true,
            attempt_text: (text != ATTEMPT).then(|| text.clone()),
            ..planned(&text)
        }
    }

    /// The process, with a text for how often the job was started again.
    fn process_with(&self, program: &Program, place: Place, attempt: &str) -> Process {
        let args = self.args;
        let (role, rank) = (program.role, place.rank);
        let host = &self.hosts[place.host_index];
        let binding = self.binding(role, place);
        let mut process = Process {
            cwd: self.paths.workspace.clone(),
            service: args.service,
            ports: self.own.ports.clone().into_iter().collect(),
            server_name: args.server_name.clone(),
            cpus: binding.map(|binding| cpus::list(binding.cpus.iter().copied())),
            ..Process::new(0, host.id, host.ip, role, rank)
        };
        let values = PlaceholderValues {
            local_rank: place.local_rank,
            rank,
            host: host.id,
            attempt,
            own: &self.own,
            others: &self.earlier.programs,
        };
        process.setup = self.setup.as_ref().map(|setup| {
            let filled = setup.fill(values);
            filled.into_string().unwrap_or_default()
        });
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
        self.set_advice(&mut process, host);
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

    /// Sets the variables of every process that the user may override.
    fn set_advice(&self, process: &mut Process, host: &Host) {
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
        // as an activation would
        if let Some(prefix) = &facts.prefix {
            let path = facts.path.as_deref().unwrap_or(USUAL_PATH);
            for (name, value) in python::activation(prefix, facts.conda_env.as_deref(), path) {
                set(process, name, value);
            }
        }
    }

    /// Has torch write what NCCL's flight recorder has noted into the workspace, if NCCL waits in
    /// vain on GPUs. Torch 2.8 warns about the names of before.
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

    /// Sets the command of a process, and what is known of it. If host-probe found an environment,
    /// its interpreter is used by path, whatever PATH will be.
    fn set_command(&self, process: &mut Process, host: &Host, values: PlaceholderValues<'_>) {
        let python = host.facts.python_path.as_ref();
        let mut command = self.command.filled(values);
        if let Some(python) = python.filter(|_| host.facts.prefix.is_some()) {
            command = command.with_interpreter(python);
        }
        process.python = command.interpreter();
        // a setup that changes the directory leaves open where the script is
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

    /// The option that tells the script its local rank. The launcher of torch passes `--local-rank`
    /// from 2.0 on and `--local_rank` before. A script that checks its torch's version takes one
    /// and ignores the other (GraphStorm does): each trainer would then take the first GPU.
    fn local_rank_option(&self, host: &Host) -> Option<&str> {
        match self.args.local_rank_arg.as_ref()? {
            RankOption::Named(name) => Some(name),
            RankOption::AsTorch if check::is_within(&host.facts.torch, (2, 0, 0)..) => {
                Some("--local-rank")
            }
            RankOption::AsTorch => Some("--local_rank"),
        }
    }

    /// The OMP_NUM_THREADS of a process. A worker that is alone on its host and was not counted may
    /// be anything, and may use the whole host.
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

    /// The number of threads of each server of a host. With auto, the servers share a quarter of
    /// the host's processors; GraphStorm's launcher does the same, but with the processors of the
    /// machine on which it runs.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use record::{Command, Facts, Graph, IpAddr};

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

    /// The process records of a dgl-env with these flags, behind what else is in its stream.
    fn plan(
        line: &str,
        hosts: &[Host],
        stream: StreamFacts,
        here: LaunchMachine,
    ) -> Result<Vec<Process>, String> {
        let args = Args::try_parse_from(["dgl-env"].into_iter().chain(line.split(' ')))
            .map_err(|error| error.to_string())?;
        let faults = |report: Report| {
            let faults: Vec<String> = report.0.iter().map(ToString::to_string).collect();
            faults.join("\n")
        };
        let command = args.command().map_err(faults)?;
        let env = UserEnv::new(&args, &|_| Some("from here".into())).map_err(faults)?;
        let plan =
            ProgramPlan::new(&args, command, hosts.to_vec(), stream, env, here).map_err(faults)?;
        Ok(plan.processes().collect())
    }

    fn of_graph(parts: Option<u32>) -> StreamFacts {
        StreamFacts {
            graph: parts.map(graph),
            ..StreamFacts::default()
        }
    }

    /// DGL's trainers have a graph record, with a part for each host.
    fn plan_on(line: &str, hosts: &[Host], here: LaunchMachine) -> Result<Vec<Process>, String> {
        let is_of_dgl = line.contains("--num-trainers");
        let stream = of_graph(is_of_dgl.then_some(hosts.len() as u32));
        plan(line, hosts, stream, here)
    }

    fn planned(line: &str, hosts: &[Host]) -> Vec<Process> {
        plan_on(line, hosts, LaunchMachine::default()).unwrap()
    }

    fn refused(line: &str, hosts: &[Host]) -> String {
        plan_on(line, hosts, LaunchMachine::default()).expect_err(line)
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
        let here = LaunchMachine {
            cpus: 16,
            ..LaunchMachine::default()
        };
        let line = "--num-trainers 2 --num-samplers 3 --num-servers 2 -- python3 t.py";
        let all = plan_on(line, &hosts(2), here).unwrap();
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

    /// The process records of a pipeline with these dgl-env, one behind another.
    fn programs(lines: &[&str], hosts: &[Host]) -> Result<Vec<Process>, String> {
        let mut all: Vec<Process> = Vec::new();
        for line in lines {
            let stream = StreamFacts {
                earlier: Earlier::of(&all),
                ..of_graph(line.contains("--num-trainers").then_some(3))
            };
            all.extend(plan(line, hosts, stream, LaunchMachine::default())?);
        }
        Ok(all)
    }

    #[test]
    fn each_program_counts_its_own_processes_and_has_its_own_ports() {
        let mut three = hosts(3);
        three[1].facts.master_port = Some(29510);
        three[1].facts.free_ports = vec![29511, 29520, 29521];
        let all = programs(
            &[
                "--program store --on 1-2 --service -- ./store --port {port:rpc} \
                 {rank}/{num_hosts}",
                "--program train --on 1,2 --num-workers 2 --env PEERS={store.world_size} \
                 --setup x={store.port:rpc} -- python3 t.py {store.master_addr}:{store.port:rpc}",
                "--program watch --on 0 -- python3 w.py {train.master_port}",
            ],
            &three,
        );
        let all = all.unwrap();
        let shown: Vec<_> = all
            .iter()
            .map(|process| {
                let role = (process.id, process.role.name(), process.rank, process.host);
                let torch = (env(process, "WORLD_SIZE"), env(process, "GROUP_RANK"));
                let port = (
                    env(process, "MASTER_ADDR"),
                    process.master_port,
                    process.service,
                );
                (role, torch, port, words(process))
            })
            .collect();
        let rpc = |rank: u32| format!("./store --port 29511 {rank}/2");
        let script = || "python3 t.py 10.0.0.2:29511".to_owned();
        let store = ("10.0.0.2", Some(29510), true);
        let train = ("10.0.0.2", Some(29520), false);
        assert_eq!(
            shown,
            [
                ((0, "store", 0, 1), ("2", "0"), store, rpc(0)),
                ((1, "store", 1, 2), ("2", "1"), store, rpc(1)),
                ((2, "train", 0, 1), ("4", "0"), train, script()),
                ((3, "train", 1, 1), ("4", "0"), train, script()),
                ((4, "train", 2, 2), ("4", "1"), train, script()),
                ((5, "train", 3, 2), ("4", "1"), train, script()),
                (
                    (6, "watch", 0, 0),
                    ("1", "0"),
                    ("10.0.0.1", Some(29500), false),
                    "python3 w.py 29520".to_owned()
                ),
            ]
        );
        assert_eq!((all[0].ports["rpc"], env(&all[5], "PEERS")), (29511, "2"));
        assert_eq!(all[4].setup.as_deref(), Some("x=29511"));
        let beside_dgl = programs(
            &[
                "--num-trainers 1 -- python3 t.py",
                "--program board --on 0 --service -- tb",
            ],
            &hosts(3),
        );
        let board = beside_dgl.unwrap().pop().unwrap();
        assert_eq!((board.id, board.of, board.master_port), (6, 7, Some(29501)));
    }

    #[test]
    fn a_free_port_that_a_server_will_have_is_not_torchs() {
        let mut three = hosts(3);
        three[0].facts.master_port = Some(30051);
        three[0].facts.free_ports = vec![30050, 30052];
        let flags = "--num-trainers 1 --num-servers 2 --workspace /ws -- x";
        let all = programs(&[flags], &three).unwrap();
        let ports: Vec<Option<u16>> = all
            .iter()
            .filter(|process| process.role == Role::Trainer)
            .map(|process| process.master_port)
            .collect();
        assert_eq!(ports, [Some(30052); 3]);
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn programs_that_do_not_fit_the_stream_are_refused() {
        let mut three = hosts(3);
        three[0].facts.master_port = Some(29500);
        three[0].facts.free_ports = vec![29501];
        let table: [(&[&str], &str); 12] = [
            (
                &["--program a -- x", "--program a -- x"],
                "process records of a in the stream",
            ),
            (
                &["--num-trainers 1 -- x", "--num-trainers 2 -- x"],
                "process records of server in",
            ),
            (
                &["--role worker -- x", "--role worker -- x"],
                "process records of worker in",
            ),
            (
                &["--program trainer -- x"],
                "trainer is a role of its own: say --role trainer",
            ),
            (&["--program A -- x"], "is not a program's name"),
            (
                &["--program a --on 3 -- x"],
                "--on: there is no host 3: the stream has 3",
            ),
            (
                &["--num-trainers 1 --on 0 -- x"],
                "--on: is for programs; DGL's servers",
            ),
            (
                &["--num-trainers 1 --service -- x"],
                "--service: is for programs; graph servers",
            ),
            (
                &[
                    "--program a -- x",
                    "--program b -- x {c.master_addr} {a.port:p}",
                ],
                "{a.port:p}: program a has no port:p\n  fix: have a use {port:p} itself, or write \
                 {{a.port:p}} for the text\n{c.master_addr}: there is no program c before this",
            ),
            (
                &["--program a -- x {port:p} {port:q}"],
                "no free port is known for q",
            ),
            (
                &[
                    "--program a --master-port 30050 -- x",
                    "--num-trainers 1 -- x",
                ],
                "30050 is a port of its servers and of another program",
            ),
            (
                &[
                    "--program a --master-port 400 -- x",
                    "--program b --master-port 400 -- x",
                ],
                "--master-port: 400 is another program's on host 0",
            ),
        ];
        for (lines, problem) in table {
            let refused = programs(lines, &three).expect_err(problem);
            assert!(refused.contains(problem), "{lines:?}: {refused}");
        }
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
        let here = LaunchMachine {
            cpus: 64,
            pythonpath: Some("/lib".into()),
            ..LaunchMachine::default()
        };
        let all = plan_on("--num-trainers 1 -- python3 t.py", &two, here).unwrap();
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
        let of = |line: &str| planned(&format!("--num-trainers 1 {line}"), &three);
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
        let workers = planned("--role worker -- python3 t.py", &three);
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
            let here = LaunchMachine {
                cpus: 16,
                omp_num_threads: own.map(OsString::from),
                ..LaunchMachine::default()
            };
            let all = plan_on(
                &format!("{line} --num-trainers 2 -- python3 t.py"),
                &hosts(1),
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
        let none = refused("--num-server-threads 0 --num-trainers 2 -- t", &hosts(1));
        assert!(none.contains("neither a number from 1 on nor auto"));
    }

    #[test]
    fn hosts_with_unequal_numbers_of_trainers() {
        let line = "--num-trainers 8,8,4 --num-samplers 2 --trainer-env \
            CUDA_VISIBLE_DEVICES={local_rank} --trainer-env ME={rank}@{host} \
                    --server-env ME={local_rank} --num-servers 2 -- t";
        let all = plan_on(
            line,
            &hosts(3),
            LaunchMachine {
                cpus: 64,
                ..LaunchMachine::default()
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
        let plan = |line: &str| planned(line, &two);
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

        let torchrun = plan(
            "--role worker -- python3 -m torch.distributed.run --nproc_per_node=2 \
             --nnodes={num_hosts} --node_rank={rank} --master_addr={master_addr} \
             --master_port={master_port} t.py -x",
        );
        assert_eq!(
            words(&torchrun[1]),
            "python3 -m torch.distributed.run --nproc_per_node=2 --nnodes=2 --node_rank=1 \
             --master_addr=10.0.0.1 --master_port=29500 t.py -x"
        );
    }

    #[test]
    fn words_of_the_command_have_placeholders() {
        let line = "--role worker --num-workers 2 --master-port 4000 -- t {rank} {local_rank} \
            {host} {world_size} tcp://{master_addr}:{master_port} {\"rank\":1} {{rank}} ${rank}";
        let all = planned(line, &hosts(2));
        assert_eq!(
            words(&all[3]),
            "t 3 1 1 4 tcp://10.0.0.1:4000 {\"rank\":1} {rank} ${rank}"
        );
        let line = "--num-trainers 2 -- python3 t.py --r={rank}";
        let all = planned(line, &hosts(2));
        let seen: Vec<_> = [1, 5].map(|id| words(&all[id])).to_vec();
        assert_eq!(seen, ["python3 t.py --r=1", "python3 t.py --r=3"]);
    }

    #[test]
    fn the_local_rank_is_called_as_the_torch_of_the_host_calls_it() {
        let mut two = hosts(2);
        two[0].facts.torch = Some("2.2.1+cpu".into());
        two[1].facts.torch = Some("1.13.1".into());
        let last = |flag: &str, id: usize| {
            let line = format!("{flag} --num-trainers 2 -- python3 t.py -x");
            words(&planned(&line, &two)[id])
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
        let workers = planned(line, &two);
        assert_eq!(words(&workers[1]), "python3 t.py --local-rank=1");
        for wrong in ["--local-rank-arg=--", "--local-rank-arg=a;b"] {
            let line = format!("{wrong} --num-trainers 1 -- t");
            assert!(refused(&line, &two).contains("--local-rank-arg"), "{wrong}");
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn the_flight_recorder_where_there_are_gpus() {
        let (old, new) = (Some("2.4.1+cu121"), Some("2.8.0"));
        let dgl = "--num-trainers 1";
        let table = [
            ("one", dgl, None, None, "- - - - -"),
            ("none", dgl, Some(0), old, "- - - - -"),
            (
                "unknown",
                dgl,
                Some(2),
                None,
                "2000 - 1 /ws/nccl_trace_rank_ -",
            ),
            ("old", dgl, Some(2), old, "2000 - 1 /ws/nccl_trace_rank_ -"),
            ("new", dgl, Some(2), new, "- 2000 1 - /ws/nccl_trace_rank_"),
            (
                "the user's, by the other name",
                "--num-trainers 1 --env TORCH_NCCL_TRACE_BUFFER_SIZE=0",
                Some(2),
                new,
                "0 - 1 - /ws/nccl_trace_rank_",
            ),
            (
                "the user's, for trainers",
                "--num-trainers 1 --trainer-env TORCH_FR_DUMP_TEMP_FILE=/tmp/{rank}_ \
                 --env TORCH_FR_DUMP_ON_TIMEOUT=0",
                Some(2),
                old,
                "2000 - - - /tmp/1_",
            ),
        ];
        for (name, line, gpus, torch, wanted) in table {
            let mut two = hosts(2);
            for host in &mut two {
                host.facts.gpus = gpus;
                host.facts.torch = torch.map(str::to_owned);
            }
            let line = format!("{line} -- python3 t.py");
            let all = planned(&line, &two);
            let names = [
                "TORCH_NCCL_TRACE_BUFFER_SIZE",
                "TORCH_FR_BUFFER_SIZE",
                "TORCH_NCCL_DUMP_ON_TIMEOUT",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                "TORCH_FR_DUMP_TEMP_FILE",
            ];
            let shown = |process: &Process| names.map(|name| env(process, name)).join(" ");
            assert_eq!(shown(&all[3]), wanted, "{name}");
            let is_server_spared = !all[0].env.contains_key("TORCH_NCCL_DUMP_ON_TIMEOUT");
            assert!(is_server_spared, "{name}");
        }

        let mut one = hosts(1);
        one[0].facts.gpus = Some(1);
        let table = [
            ("--role worker -- t", "-"),
            ("--role worker --workspace /d/ -- t", "/d/nccl_trace_rank_"),
            (
                "--program train --workspace /d -- t",
                "/d/train_nccl_trace_rank_",
            ),
        ];
        for (line, wanted) in table {
            let all = planned(line, &one);
            let got = env(&all[0], "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
            assert_eq!(got, wanted, "{line}");
        }
    }

    #[test]
    fn as_many_trainers_as_gpus() {
        let mut two = hosts(2);
        two[0].facts.gpus = Some(2);
        let line = "--num-trainers gpus -- t";
        let table = [
            (
                None,
                "host 1 (10.0.0.2): --num-trainers gpus: its number of GPUs",
            ),
            (Some(0), "has no GPU"),
            (Some(4_000_000_000), "more than any machine has"),
        ];
        for (gpus, problem) in table {
            two[1].facts.gpus = gpus;
            let got = refused(line, &two);
            assert!(got.contains(problem), "{got}");
        }
        two[1].facts.gpus = Some(1);
        let all = planned(line, &two);
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

        let warning = |counts: &[u32]| check::more_than_gpus(&two, counts).unwrap_or_default();
        assert_eq!(warning(&[2, 1]), "");
        let one = warning(&[2, 3]);
        assert!(
            one.starts_with("host 1 (10.0.0.2) has 1 GPU for 3 processes: "),
            "{one}"
        );
        let both = warning(&[3, 3]);
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
        let all = plan(line, &two, of_graph(None), LaunchMachine::default()).unwrap();
        assert_eq!(
            (all[0].cwd.as_deref(), env(&all[0], "DGL_CONF_PATH")),
            (Some("/home/u/job"), "/home/u/job/data/g.json")
        );
    }

    #[test]
    fn other_shapes_of_a_job() {
        let local = planned(
            "--local-rank-arg --num-trainers 2 -- python3 t.py",
            &hosts(1),
        );
        assert_eq!(words(&local[2]), "python3 t.py --local_rank=1");
        let servers = planned("--role server --num-trainers 2 -- python3 t.py", &hosts(2));
        assert!(servers.len() == 2 && servers.iter().all(|process| process.role == Role::Server));
        let workers = planned("--role worker -- hostname", &hosts(3));
        assert_eq!(
            (
                workers.len(),
                env(&workers[2], "RANK"),
                env(&workers[2], "WORLD_SIZE"),
                env(&workers[2], "DGL_ROLE")
            ),
            (3, "2", "3", "-")
        );
    }

    #[test]
    fn the_environment_is_literal_and_the_last_wins() {
        let all = planned(
            "--env A=$HOME=1 --env B --env A=2;x --num-trainers 1 -- python3 t.py",
            &hosts(1),
        );
        assert_eq!((env(&all[0], "A"), env(&all[0], "B")), ("2;x", "from here"));
    }

    #[test]
    fn the_rendezvous_is_the_same_for_words_and_variables() {
        for line in [
            "--role worker --env MASTER_PORT=29123 -- t",
            "--role worker --env URL={master_addr}:{master_port} -- t",
            "--role worker --env MASTER_ADDR={master_addr}.internal -- t {master_addr}",
            "--num-trainers 1 --server-env MASTER_PORT=29123 -- t {master_port}",
        ] {
            planned(line, &hosts(2));
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_cannot_be_is_refused() {
        let with_graph = [
            (
                "--num-trainers 1 --workspace /other -- t",
                "--workspace: /other here, but /ws in the stream",
            ),
            (
                "--num-trainers 1 --part-config g.json -- t",
                "--part-config: g.json here, but data/g.json",
            ),
            (
                "--num-trainers 1 --ip-config ip_config.txt -- t",
                "--ip-config: ip_config.txt here, but ip.txt",
            ),
            ("--num-trainers 1", "COMMAND: is missing"),
            ("--num-trainers 1 one -- two", "is there twice"),
            ("--role server -- t", "--num-trainers: is missing"),
            (
                "--role server --role worker --num-trainers 1 -- t",
                "worker does not go together",
            ),
            (
                "--num-trainers 1 --env DGL_NUM_CLIENT=3 -- t",
                "DGL_NUM_CLIENT cannot be set",
            ),
            (
                "--num-trainers 1 --env A-B=3 -- t",
                "is not a variable's name",
            ),
            (
                "--num-trainers 1 -- torchrun t.py",
                "COMMAND: starts torch's launcher itself",
            ),
            (
                "--num-trainers 1,2,3 -- t",
                "--num-trainers: has 3 numbers for 2 hosts",
            ),
            (
                "--num-trainers 1,0 -- t",
                "\"0\" is not a number from 1 to 1024, nor gpus",
            ),
            ("--num-trainers 1, -- t", "\"\" is not a number"),
            (
                "--num-trainers 1 --trainer-env A={gpu} -- t",
                "{gpu} is not {local_rank}",
            ),
            (
                "--num-trainers 1 --env MASTER_PORT=29123 -- t {master_port}",
                "{master_port}: is another port than the MASTER_PORT that is set",
            ),
            (
                "--role worker --trainer-env MASTER_ADDR=10.0.0.9 -- t tcp://{master_addr}:1",
                "{master_addr}: is another address",
            ),
            (
                "--role worker --server-env A=b -- t",
                "--server-env: is not for workers\n  fix: say --trainer-env, or --env",
            ),
            (
                "--num-trainers 1 --graph-format csc,cso -- t",
                "\"cso\" is not csc, coo or csr",
            ),
            (
                "--num-trainers 1 --num-servers 2 --master-port 30051 -- t",
                "the master port 30051 is one of its servers' (30050 to 30051)",
            ),
            ("-- t", "--num-trainers"),
        ];
        let without = [
            ("--num-trainers 1 -- t", "--workspace: is missing"),
            (
                "--num-trainers 1 --workspace /ws -- t",
                "--part-config: is missing",
            ),
            (
                "--num-trainers 1 --workspace ws --part-config g.json -- t",
                "is not an absolute path",
            ),
            (
                "--role worker --num-workers 2 -- torchrun t.py -x",
                "COMMAND: starts torch's launcher itself, whose processes the plan does not \
                 know\n  fix: give what it starts: python3 t.py -x",
            ),
            (
                "--role worker -- python3 -m graphstorm.run.gs_link_prediction --cf c.yaml",
                "or put gs-launch before the line",
            ),
            (
                "--num-trainers 1 --workspace ~/ws -- t",
                "--workspace: ~/ws: the home of host 0 (10.0.0.1) is not known",
            ),
        ];
        let parted = [("--num-trainers 1 -- t", "3 partitions for 2 hosts")];
        let tables = [
            (Some(2), &with_graph[..]),
            (None, &without),
            (Some(3), &parted),
        ];
        for (parts, table) in tables {
            for (line, problem) in table {
                let stream = of_graph(parts);
                let got = plan(line, &hosts(2), stream, LaunchMachine::default()).expect_err(line);
                assert!(got.contains(problem), "{line}: {got}");
            }
        }
        let line = "--num-trainers 1024 --num-samplers 1024 --num-servers 1024 -- t";
        let got = refused(line, &hosts(2100));
        assert!(
            got.contains("2204160000 trainers and samplers are more")
                && got.contains("4300800 processes are more than"),
            "{got}"
        );
        // the same path in other words
        planned(
            "--num-trainers 1 --part-config ./data//g.json -- t",
            &hosts(2),
        );
    }
}
