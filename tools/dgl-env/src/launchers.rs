//! Commands that are launchers themselves and start processes that are not in the plan.
//!
//! Some start processes on their own host only. Such a launcher may be the only worker of each host
//! if its arguments give the host's number. The others start processes on all hosts, by logins of
//! their own or by a batch system, so they never belong in a plan.

use crate::script::{self, is_interpreter, script_index};
use record::error::Fault;
use record::{Host, quote};

struct KnownLauncher {
    /// The program, with its subcommand if it has one, or `-m MODULE`.
    names: &'static [&'static str],
    /// The name in messages.
    title: &'static str,
    reach: Reach,
}

/// Where a launcher starts processes.
enum Reach {
    Host {
        /// Options that give the number of the host.
        rank_options: &'static [&'static str],
        /// Options without which each host has a job of its own, or with which the launchers agree
        /// on the numbers themselves.
        needs_no_rank: &'static [&'static str],
        /// For the number of processes on a host.
        count_option: &'static str,
        /// The arguments by which the launchers of all hosts find each other, for words and for
        /// shell text.
        arguments: [&'static str; 2],
    },
    /// On all hosts, or on those that its arguments name.
    Cluster {
        /// Advice besides giving the command that it would start.
        advice: &'static str,
    },
}

const TORCH: Reach = Reach::Host {
    rank_options: &["node_rank"],
    needs_no_rank: &["standalone", "rdzv_id"],
    count_option: "--nproc_per_node=",
    arguments: [
        "--nnodes={num_hosts} --node_rank={rank} --master_addr={master_addr} \
         --master_port={master_port}",
        "--nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR \
         --master_port=$MASTER_PORT",
    ],
};

/// <https://huggingface.co/docs/accelerate/package_reference/cli>
const ACCELERATE: Reach = Reach::Host {
    rank_options: &["machine_rank"],
    needs_no_rank: &["rdzv_id"],
    count_option: "--num_processes=",
    arguments: [
        "--num_machines={num_hosts} --machine_rank={rank} --main_process_ip={master_addr} \
         --main_process_port={master_port} --num_processes=TOTAL",
        "--num_machines=$WORLD_SIZE --machine_rank=$RANK --main_process_ip=$MASTER_ADDR \
         --main_process_port=$MASTER_PORT --num_processes=TOTAL",
    ],
};

/// composer/cli/launcher.py; it reads MASTER_ADDR and MASTER_PORT itself.
const COMPOSER: Reach = Reach::Host {
    rank_options: &["node_rank", "base_rank"],
    needs_no_rank: &[],
    count_option: "--nproc=",
    arguments: [
        "--node_rank={rank} --world_size=TOTAL",
        "--node_rank=$RANK --world_size=TOTAL",
    ],
};

/// Lightning Fabric's, which hands over to torch's.
const FABRIC: Reach = Reach::Host {
    rank_options: &["node_rank"],
    needs_no_rank: &[],
    count_option: "--devices=",
    arguments: [
        "--num_nodes={num_hosts} --node_rank={rank} --main_address={master_addr} \
         --main_port={master_port}",
        "--num_nodes=$WORLD_SIZE --node_rank=$RANK --main_address=$MASTER_ADDR \
         --main_port=$MASTER_PORT",
    ],
};

const CLUSTER: Reach = Reach::Cluster { advice: "" };

const LAUNCHERS: [KnownLauncher; 12] = [
    KnownLauncher {
        names: &[
            "torchrun",
            "-m torch.distributed.run",
            "-m torch.distributed.launch",
        ],
        title: "torch's launcher",
        reach: TORCH,
    },
    KnownLauncher {
        names: &["accelerate launch", "-m accelerate.commands.launch"],
        title: "accelerate's launcher",
        reach: ACCELERATE,
    },
    KnownLauncher {
        names: &["composer", "-m composer.cli.launcher"],
        title: "composer's launcher",
        reach: COMPOSER,
    },
    KnownLauncher {
        names: &["fabric run", "lightning run"],
        title: "Lightning's launcher",
        reach: FABRIC,
    },
    KnownLauncher {
        names: &["colossalai run", "-m colossalai.cli"],
        title: "ColossalAI's launcher",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &[DEEPSPEED, "-m deepspeed.launcher.runner"],
        title: "DeepSpeed's launcher",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &["horovodrun", "-m horovod.runner.launch"],
        title: "horovodrun",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun"],
        title: "MPI's launcher",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &["srun", "aprun", "jsrun", "ibrun", "flux run"],
        title: "the batch system's launcher",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &["ray start", "ray submit", "ray exec", "ray up", "ray job"],
        title: "Ray's launcher",
        reach: CLUSTER,
    },
    KnownLauncher {
        names: &["-m graphstorm.run"],
        title: "GraphStorm's launcher",
        reach: Reach::Cluster {
            advice: "; or put gs-launch before the line",
        },
    },
    KnownLauncher {
        names: &[DGL],
        title: "DGL's launcher",
        reach: Reach::Cluster {
            advice: "; or use dgl-launch",
        },
    },
];

/// A script of the user may have this name too.
const DGL: &str = "launch.py";
/// A Python script may have an option value with this name.
const DEEPSPEED: &str = "deepspeed";

pub struct StartedLauncher {
    launcher: &'static KnownLauncher,
    /// Its own arguments.
    options: Vec<String>,
    /// The command that it starts.
    inner: String,
}

impl StartedLauncher {
    /// The fault of processes unknown to the plan. `workers` has each host's number of workers, if
    /// the processes are workers.
    pub fn fault(&self, workers: Option<&[u32]>, hosts: &[Host], is_shell: bool) -> Option<Fault> {
        let title = self.launcher.title;
        let unknown = format!("{title} is not needed: dgl-env starts every process itself");
        let most = workers.and_then(|counts| counts.iter().max());
        let (problem, fix) = match (&self.launcher.reach, most) {
            (Reach::Cluster { advice }, _) => (unknown, format!("run {}{advice}", self.inner)),
            (Reach::Host { .. }, None) => (unknown, format!("run {}", self.inner)),
            (Reach::Host { .. }, Some(1)) if self.knows_its_host(hosts) => return None,
            (
                Reach::Host {
                    arguments,
                    needs_no_rank,
                    ..
                },
                Some(1),
            ) => {
                let alone = if needs_no_rank.contains(&"standalone") {
                    "; or --standalone, if each host has a separate job"
                } else {
                    ""
                };
                (
                    format!("{title} does not know on which of the hosts it runs"),
                    format!(
                        "run {} with --num-workers N; or give the launcher {}{alone}",
                        self.inner,
                        arguments[usize::from(is_shell)]
                    ),
                )
            }
            (
                Reach::Host {
                    arguments,
                    count_option,
                    ..
                },
                Some(most),
            ) => {
                let arguments = arguments[usize::from(is_shell)];
                // accelerate counts the processes of all hosts
                let count = if arguments.contains(count_option) {
                    String::new()
                } else {
                    format!("{count_option}{most} ")
                };
                (
                    unknown,
                    format!(
                        "run {}; or leave out --num-workers, and give the launcher \
                         {count}{arguments}",
                        self.inner
                    ),
                )
            }
        };
        Some(Fault::usage("COMMAND", problem).fix(fix))
    }

    /// Whether a launcher for its own host knows that host's number, or needs none.
    fn knows_its_host(&self, hosts: &[Host]) -> bool {
        let Reach::Host {
            rank_options,
            needs_no_rank,
            ..
        } = self.launcher.reach
        else {
            return false;
        };
        let are_numbered_from_0 = (0..).zip(hosts).all(|(number, host)| host.id == number);
        let given = |name: &&str| script::option(&self.options, name);
        let is_numbered = rank_options.iter().filter_map(given).any(|(_, value)| {
            value.parse::<u32>().is_err() && (are_numbered_from_0 || !value.contains("{host}"))
        });
        let is_flag = |name: &&str| self.options.contains(&format!("--{name}"));
        let mut needs_none = needs_no_rank.iter();
        hosts.len() < 2
            || is_numbered
            || needs_none.any(|name| given(name).is_some() || is_flag(name))
    }
}

/// By the first word of a command, or as the script or module of Python.
pub fn find(words: &[String]) -> Option<StartedLauncher> {
    let has_python = is_interpreter(words.first()?);
    let script = script_index(words).filter(|_| has_python);
    let index = script.unwrap_or(0);
    let length = |name: &&str| {
        let is_started = is_started(words, index, name)
            && match *name {
                DEEPSPEED => script.is_none(),
                DGL => script.is_some() && words.iter().any(|word| is_num_trainers(word)),
                _ => true,
            };
        is_started.then(|| name.split(' ').filter(|part| *part != "-m").count())
    };
    let mut found = LAUNCHERS
        .iter()
        .filter_map(|launcher| Some((launcher, launcher.names.iter().find_map(length)?)));
    let (launcher, length) = found.next()?;
    let arguments = &words[index + length..];
    let inner = (0..arguments.len()).find(|index| begins_a_script(&arguments[*index..]));
    let (options, inner) = arguments.split_at(inner.unwrap_or(arguments.len()));
    Some(StartedLauncher {
        launcher,
        options: options.to_vec(),
        inner: if inner.is_empty() {
            "python3 train.py …".to_owned()
        } else {
            format!(
                "python3 {}",
                String::from_utf8_lossy(&quote::sh_words(inner))
            )
        },
    })
}

/// Whether a launcher's options end here, with a script or a module.
fn begins_a_script(words: &[String]) -> bool {
    words[0].ends_with(".py") || words[0] == "-m" && words.len() > 1
}

/// Whether the words from this index on start the launcher `name`. GraphStorm's has a module for
/// each task; its scripts are modules too.
fn is_started(words: &[String], index: usize, name: &str) -> bool {
    let program = words[index].rsplit('/').next().unwrap_or_default();
    let is_module = index > 0 && words[index - 1] == "-m";
    match (name.strip_prefix("-m "), name.split_once(' ')) {
        (Some("graphstorm.run"), _) => {
            let task = program.strip_prefix("graphstorm.run.").unwrap_or_default();
            is_module && (task == "launch" || task.starts_with("gs_"))
        }
        (Some(module), _) => is_module && program == module,
        (None, Some((name, subcommand))) => {
            let next = words.get(index + 1).map(String::as_str);
            !is_module && program == name && next == Some(subcommand)
        }
        (None, None) => !is_module && program == name,
    }
}

fn is_num_trainers(word: &str) -> bool {
    word.replace('_', "-").starts_with("--num-trainers")
}
