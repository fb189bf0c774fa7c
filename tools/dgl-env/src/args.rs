//! The command line.

use crate::bind::Bind;
use crate::command::UserCommand;
use crate::counts::{PerHost, graph_format, per_host};
use clap::Parser;
use cli::job_name;
use record::Role;
use record::error::{Fault, Report};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Plans every process of a job: its role, rank, environment and command.
///
/// Reads host records (with what host-probe found, if it did) and adds a process record for each
/// graph server and trainer of DGL, each worker, or each process of a program. Words after -- are
/// the command, never read by a shell; a command in one word is shell text.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  … | dgl-env --workspace '~/job' --part-config data/g.json --num-trainers 2 \\
        --num-samplers 4 -- python3 code/train.py --lr 0.1 | dgl-spawn
  … | dgl-env --num-trainers 2 'source env.sh && python3 code/train.py'
  … | dgl-env --role worker --num-trainers gpus -- python3 ddp.py | dgl-spawn"
)]
pub struct Args {
    /// Trainers (or workers) on each host, or N,N,… with one number for each; gpus: one per GPU
    ///
    /// A list is in the order of ip_config. `gpus` is the number that host-probe(1) found on the
    /// host, and an error if it found none. A warning names hosts with some, but too few GPUs.
    ///
    /// DGL's `node_split()` assumes equal numbers; with different ones, the script must split its
    /// nodes itself.
    ///
    /// The default is 1 with `--role worker` and `--program`; otherwise this option is required.
    #[arg(long, visible_alias = "num-workers", value_parser = per_host, value_name = "N|gpus")]
    pub num_trainers: Option<PerHost>,

    /// Samplers of each trainer, which starts them itself
    ///
    /// The script must start exactly this number, or the job hangs: a server waits until
    /// `DGL_NUM_CLIENT` clients have connected. From DGL 0.6.1 on, `initialize()` reads the number
    /// from the environment; in older versions the script passes it.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024),
        value_name = "N")]
    pub num_samplers: u32,

    /// Graph servers on each host
    ///
    /// They listen on the host's port and the following ones. Give ipconf-check(1) and
    /// host-probe(1) the same number.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024),
        value_name = "N")]
    pub num_servers: u16,

    /// The job's directory on every host: absolute, or '~/…' [default: the record's]
    ///
    /// It is the working directory of every process. The record is the *graph* or *workspace*
    /// record of part-map(1). `~/` is the home directory that host-probe(1) found; it must be the
    /// same on all hosts.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,

    /// The partition config, below the workspace or absolute [default: the record's]
    #[arg(long, value_name = "PATH")]
    pub part_config: Option<PathBuf>,

    /// The ip_config, below the workspace or absolute [default: the record's, else ip_config.txt]
    ///
    /// A *graph* record determines `--workspace`, `--part-config` and `--ip-config`, a *workspace*
    /// record all but `--part-config`. An option that differs from the record is an error. Without
    /// these records, servers and trainers need `--workspace` and `--part-config`.
    #[arg(long, hide_short_help = true, value_name = "PATH")]
    pub ip_config: Option<PathBuf>,

    /// OpenMP threads of a server; auto: by its host's cores
    ///
    /// This is its `OMP_NUM_THREADS`. `auto` divides a quarter of the host's processors among its
    /// servers, at least 1 for each.
    #[arg(long, hide_short_help = true, default_value = "1", value_parser = server_threads,
        value_name = "N|auto")]
    pub num_server_threads: ServerThreads,

    /// OpenMP threads of a trainer or worker [default: by its host's cores]
    ///
    /// This is its `OMP_NUM_THREADS`. The default is the value on this machine, if it is set;
    /// otherwise half of the host's processors are divided among its trainers or workers, at least
    /// 1 for each. If host-probe(1) did not count the processors, this machine's count, with a
    /// warning. A worker gets the variable only with this option or `--num-workers`.
    #[arg(long, hide_short_help = true, value_parser = clap::value_parser!(u32).range(1..),
        value_name = "N")]
    pub num_omp_threads: Option<u32>,

    /// Bind each process to a NUMA node, or to separate cores of one node [default: not bound]
    ///
    /// See [Binding to cores].
    #[arg(
        long,
        hide_short_help = true,
        value_enum,
        value_name = "numa|cores",
        hide_possible_values = true
    )]
    pub bind: Option<Bind>,

    /// Sparse formats that servers make of the graph: csc, coo, csr; link prediction needs csc,coo
    ///
    /// Sampling needs csc.
    #[arg(long, hide_short_help = true, default_value = "csc", value_parser = graph_format,
        value_name = "LIST")]
    pub graph_format: String,

    /// A variable for every process; NAME alone passes on its value on this machine
    ///
    /// Values are literal except for placeholders. The last value of a name counts.
    ///
    /// Variables that count, number or identify processes cannot be set: `RANK`, `LOCAL_RANK`,
    /// `WORLD_SIZE`, `LOCAL_WORLD_SIZE`, `GROUP_RANK`, `DGL_ROLE`, `DGL_SERVER_ID`,
    /// `DGL_DIST_MODE`, `DGL_NUM_CLIENT`, `DGL_NUM_SERVER`, `DGL_NUM_SAMPLER`, `DGL_CONF_PATH`,
    /// `DGL_IP_CONFIG`, `DGL_GROUP_ID` and `DGL_KEEP_ALIVE`. This overrides all other variables of
    /// the plan.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,

    /// The same for trainers (or workers)
    ///
    /// This overrides `--env`. Write `{{` and `}}` for braces.
    #[arg(
        long,
        hide_short_help = true,
        visible_alias = "worker-env",
        value_name = "NAME[=VALUE]"
    )]
    pub trainer_env: Vec<OsString>,

    /// The same for graph servers
    ///
    /// This overrides `--env`, with braces as in `--trainer-env`.
    #[arg(long, hide_short_help = true, value_name = "NAME[=VALUE]")]
    pub server_env: Vec<OsString>,

    /// Shell text that runs before the command, such as 'source env.sh'
    ///
    /// The user's `$SHELL` on the host runs it and then the command. Most shells run the command
    /// even if a part of the text failed, unless the text begins with `set -e;`. Other users of the
    /// host can read the text while the shell runs.
    #[arg(long, value_name = "SHELL")]
    pub setup: Option<String>,

    /// Pass each script --local-rank=N (or --local_rank=N, as its torch expects), or NAME=N
    ///
    /// Scripts of DGL 0.5 to 1.0 and GraphStorm expect this argument of torch's launcher. It is
    /// `--local-rank=N` if host-probe(1) found torch 2.0 or later on the host, and otherwise
    /// `--local_rank=N`; with the wrong spelling, every trainer of GraphStorm uses the first GPU.
    /// `NAME` chooses another argument.
    #[arg(long, hide_short_help = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "", value_parser = rank_option, value_name = "NAME")]
    pub local_rank_arg: Option<RankOption>,

    /// The port of torch's rendezvous on the first host of the program [default: a free one]
    ///
    /// host-probe(1) finds the free port; without it, the port is 29500.
    #[arg(long, hide_short_help = true, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "PORT")]
    pub master_port: Option<u16>,

    /// Keep graph servers running when their trainers finish (DGL 0.8 to 1.1)
    ///
    /// They serve one group of trainers after another (`DGL_KEEP_ALIVE`). This needs `--role
    /// server` and `--server-name`.
    #[arg(long, hide_short_help = true, requires = "server_name")]
    pub keep_alive: bool,

    /// The name of the persistent servers that you plan, or that the trainers use
    ///
    /// With `--role server --keep-alive` this plans servers as a separate job with this name; with
    /// `--role trainer`, trainers that use them. See [Persistent graph servers] in
    /// dgl-tools-jobs(7).
    #[arg(long, hide_short_help = true, value_name = "NAME", value_parser = job_name)]
    pub server_name: Option<String>,

    /// Add a program of this name, with its own ranks
    ///
    /// Its processes are plain ones, as with `--role worker`, and run beside the programs that are
    /// in the stream already; see [Several programs]. The name consists of lowercase letters,
    /// digits, dashes and underscores.
    #[arg(long, value_parser = program, conflicts_with = "role", value_name = "NAME")]
    pub program: Option<Role>,

    /// Run the program, or the workers, on these hosts only, by their numbers: 0-1,3 [default: all]
    ///
    /// A list in `--num-workers` has a number for each of these hosts.
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_parser = host_range,
        value_name = "HOSTS")]
    pub on: Vec<RangeInclusive<u32>>,

    /// The program serves the others, and dgl-spawn stops it after them
    ///
    /// dgl-spawn(1) stops it when all programs that are not services have finished with status 0.
    /// If it ends by itself, the others must end within 5 s plus the time of
    /// `dgl-spawn --host-timeout`, or the job fails.
    #[arg(long, hide_short_help = true)]
    pub service: bool,

    /// Plan only this role: server, trainer or worker (a plain process) [default: server, trainer]
    ///
    /// A `worker` has none of DGL's variables: it runs a script of torch.distributed, or a command
    /// that prepares or inspects the hosts. It cannot be combined with the other roles, or with
    /// options about graph servers and trainers.
    #[arg(long, value_parser = role, value_name = "ROLE")]
    pub role: Vec<Role>,

    /// The command as one word of shell text
    #[arg(value_name = "COMMAND STRING")]
    pub shell: Option<String>,

    /// The command in words
    #[arg(last = true, value_name = "COMMAND")]
    pub words: Vec<OsString>,
}

fn role(text: &str) -> Result<Role, String> {
    match text.parse() {
        Ok(role @ (Role::Server | Role::Trainer | Role::Worker)) => Ok(role),
        _ => Err(format!("{text:?} is neither server nor trainer nor worker")),
    }
}

fn program(text: &str) -> Result<Role, String> {
    match text.parse()? {
        role @ Role::Program(_) => Ok(role),
        role => Err(format!(
            "{} is a built-in role: use --role {0}",
            role.name()
        )),
    }
}

fn host_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse::<u32>(), last.parse::<u32>()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!(
            "{text:?} is neither a host's number nor a range such as 0-3"
        )),
    }
}

/// The number of threads of a graph server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerThreads {
    /// This number.
    Number(u32),
    /// The servers of a host share a quarter of its processors.
    Auto,
}

fn server_threads(text: &str) -> Result<ServerThreads, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(ServerThreads::Auto),
        (_, Ok(threads @ 1..)) => Ok(ServerThreads::Number(threads)),
        _ => Err(format!("{text:?} is neither a number from 1 on nor auto")),
    }
}

/// The option by which a script is told its local rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankOption {
    /// The option that the launcher of the host's torch uses.
    AsTorch,
    /// An option of this name, dashes included.
    Named(String),
}

fn rank_option(text: &str) -> Result<RankOption, String> {
    let name = text.trim_start_matches('-');
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    match (text, name) {
        ("", _) => Ok(RankOption::AsTorch),
        (_, "") => Err("names no option".to_owned()),
        (_, name) if !name.chars().all(plain) => Err(format!(
            "{name:?} is not an option's name: letters, digits, dashes and underscores"
        )),
        (given, name) if given == name => Ok(RankOption::Named(format!("--{name}"))),
        (given, _) => Ok(RankOption::Named(given.to_owned())),
    }
}

impl Args {
    /// The program of the plan that computes: DGL's trainers, or plain processes.
    pub fn client_role(&self) -> Role {
        self.program
            .unwrap_or(if self.role.contains(&Role::Worker) {
                Role::Worker
            } else {
                Role::Trainer
            })
    }

    /// Whether the plan has DGL's two programs, which count each other even where --role has only
    /// one of them started.
    pub fn is_dgl(&self) -> bool {
        self.client_role().is_dgl()
    }

    /// Whether this program of the plan is started.
    pub fn starts(&self, role: Role) -> bool {
        let is_planned = role == self.client_role() || (role == Role::Server && self.is_dgl());
        is_planned && (self.role.is_empty() || self.role.contains(&role))
    }

    /// The command of the user.
    pub fn command(&self) -> Result<UserCommand, Report> {
        let command = self.given_command()?;
        let setup = self.setup.clone().map(UserCommand::Shell);
        let of_setup = setup.map(|setup| setup.typography("--setup"));
        let mut faults = of_setup.unwrap_or_default();
        faults.extend(command.typography("COMMAND"));
        Report(faults).check()?;
        Ok(command)
    }

    fn given_command(&self) -> Result<UserCommand, Report> {
        match (&self.shell, self.words.is_empty()) {
            (None, false) => Ok(UserCommand::Words(self.words.clone())),
            (Some(text), true) if !text.trim().is_empty() => Ok(UserCommand::Shell(text.clone())),
            (Some(_), false) => Err(Fault::usage(
                "COMMAND",
                "is given twice: as words after -- and as a string",
            )
            .fix("put the whole command after --")
            .report()),
            _ => Err(Fault::usage("COMMAND", "is missing")
                .fix("end the line with -- python3 train.py …")
                .report()),
        }
    }
}
