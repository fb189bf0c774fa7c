//! Commands that are launchers themselves, whose processes are not in the plan.

use crate::script;
use crate::shell::Word;
use record::error::Fault;
use record::{Host, quote};

/// The arguments by which torch's launchers find each other, in words and in shell text.
const NUMBERED: [&str; 2] = [
    "--nnodes={num_hosts} --node_rank={rank} --master_addr={master_addr} \
     --master_port={master_port}",
    "--nnodes=$WORLD_SIZE --node_rank=$RANK --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT",
];

/// The program, script or module of each launcher, whose it is, and advice besides giving what it
/// starts.
const LAUNCHERS: [(&str, &str, &str); 6] = [
    ("torchrun", "torch", ""),
    ("-m torch.distributed.run", "torch", ""),
    ("-m torch.distributed.launch", "torch", ""),
    ("deepspeed", "DeepSpeed", ""),
    (
        "-m graphstorm.run",
        "GraphStorm",
        "; or put gs-launch before the line",
    ),
    ("launch.py", "DGL", "; or take dgl-launch"),
];

/// A launcher that a command starts.
pub struct StartedLauncher {
    /// Whose it is.
    owner: &'static str,
    advice: &'static str,
    /// Its own arguments.
    options: Vec<Option<String>>,
    /// What it starts.
    inner: String,
}

impl StartedLauncher {
    /// The fault of a launcher that starts processes unknown to the plan. Torch's starts those of
    /// its host alone, so it may be the only worker of each host, if it is told which host that is:
    /// otherwise all would wait for the first. `workers` has their number on each host, if the
    /// processes are workers.
    pub fn fault(&self, workers: Option<&[u32]>, hosts: &[Host], is_shell: bool) -> Option<Fault> {
        let workers = workers.filter(|_| self.owner == "torch");
        let most = workers.and_then(|counts| counts.iter().max());
        let numbered = NUMBERED[usize::from(is_shell)];
        let (problem, fix) = match most {
            Some(1) if self.knows_its_host(hosts) => return None,
            Some(1) => (
                "starts torch's launcher on several hosts, and does not tell each which host it is"
                    .to_owned(),
                format!("give it {numbered}; or --standalone, if each host has a job of its own"),
            ),
            _ => {
                let owner = self.owner;
                let instead = most.map_or(self.advice.to_owned(), |most| {
                    format!(
                        "; or leave out --num-workers, and give the launcher \
                         --nproc_per_node={most} {numbered}"
                    )
                });
                (
                    format!(
                        "starts {owner}'s launcher itself, whose processes the plan does not know"
                    ),
                    format!("give what it starts: {}{instead}", self.inner),
                )
            }
        };
        Some(Fault::usage("COMMAND", problem).fix(fix))
    }

    /// Whether torch's launcher knows the number of its host, or needs none: it is alone, or meets
    /// the others by a rendezvous.
    fn knows_its_host(&self, hosts: &[Host]) -> bool {
        let are_numbered_from_0 = (0..).zip(hosts).all(|(number, host)| host.id == number);
        let given = |name: &str| script::option(&self.options, name);
        let is_numbered = given("node_rank").is_some_and(|(_, value)| {
            value.parse::<u32>().is_err() && (are_numbered_from_0 || !value.contains("{host}"))
        });
        let standalone = Some("--standalone".to_owned());
        let needs_none = given("rdzv_id").is_some() || self.options.contains(&standalone);
        hosts.len() < 2 || is_numbered || needs_none
    }
}

/// The launcher that a simple command starts. `script` is the position of the script or module of a
/// Python program, because a script may have an option with a launcher's name.
pub fn find(words: &[Word], script: Option<usize>) -> Option<StartedLauncher> {
    let is_script = |word: &Word| word.text.ends_with(".py");
    let end = match script {
        Some(script) => script + 1,
        None => words.iter().position(is_script).unwrap_or(words.len()),
    };
    let launcher = |index: usize| {
        let name = program_name(words, index);
        let is_started = |(program, owner, _): &&(&str, &str, &str)| {
            *program == name
                && match *owner {
                    "DeepSpeed" => script.is_none(),
                    // a script of the user's may have this name
                    "DGL" => script == Some(index) && words.iter().any(is_num_trainers),
                    _ => true,
                }
        };
        Some((index, LAUNCHERS.iter().find(is_started)?))
    };
    let (index, (_, owner, advice)) = (0..end).find_map(launcher)?;
    let arguments = &words[index + 1..];
    let inner = (0..arguments.len()).find(|index| begins_a_script(&arguments[*index..]));
    let (options, inner) = arguments.split_at(inner.unwrap_or(arguments.len()));
    let inner: Vec<&String> = inner.iter().map(|word| &word.text).collect();
    Some(StartedLauncher {
        owner,
        advice,
        options: options.iter().map(|word| Some(word.text.clone())).collect(),
        inner: match inner.is_empty() {
            true => "python3 train.py …".to_owned(),
            false => format!(
                "python3 {}",
                String::from_utf8_lossy(&quote::sh_words(inner))
            ),
        },
    })
}

/// Whether a launcher's options end here: with a script, or a module.
fn begins_a_script(words: &[Word]) -> bool {
    words[0].text.ends_with(".py") || words[0].text == "-m" && words.len() > 1
}

/// The program, script or module that a word may be, without its folder. GraphStorm's launcher has
/// a module for each task; its scripts are modules too.
fn program_name(words: &[Word], index: usize) -> String {
    let name = words[index].text.rsplit('/').next().unwrap_or_default();
    if index == 0 || words[index - 1].text != "-m" {
        return name.to_owned();
    }
    let task = name.strip_prefix("graphstorm.run.").unwrap_or_default();
    match task == "launch" || task.starts_with("gs_") {
        true => "-m graphstorm.run".to_owned(),
        false => format!("-m {name}"),
    }
}

fn is_num_trainers(word: &Word) -> bool {
    word.text.replace('_', "-").starts_with("--num-trainers")
}

#[cfg(test)]
mod tests {
    use crate::command::UserCommand;
    use record::Host;
    use std::ffi::OsString;

    fn words(line: &str) -> UserCommand {
        UserCommand::Words(line.split(' ').map(OsString::from).collect())
    }

    fn refusal(command: UserCommand, workers: Option<&[u32]>, ids: &[u32]) -> String {
        let host = |id: &u32| Host {
            id: *id,
            ..Host::default()
        };
        let hosts: Vec<Host> = ids.iter().map(host).collect();
        let is_shell = matches!(command, UserCommand::Shell(_));
        let launcher = command.launcher();
        let fault = launcher.and_then(|launcher| launcher.fault(workers, &hosts, is_shell));
        fault.map_or_else(String::new, |fault| fault.to_string())
    }

    const TORCHRUN: &str =
        "python3 -m torch.distributed.run --nproc_per_node=2 --nnodes={num_hosts}";

    #[test]
    fn torchs_launcher_may_be_the_only_worker_of_a_host_that_it_knows() {
        let table = [
            ("--node_rank={rank} t.py", &[1, 1][..], &[2, 3][..]),
            ("--node-rank {rank} -m mod", &[1, 1], &[0, 1]),
            ("--node_rank={host} t.py", &[1, 1], &[0, 1]),
            (
                "--rdzv-id=7 --rdzv_endpoint={master_addr}:1 t.py",
                &[1, 1],
                &[0, 1],
            ),
            ("--standalone t.py", &[1, 1], &[0, 1]),
            ("t.py", &[1], &[1]),
        ];
        for (line, workers, ids) in table {
            let command = words(&format!("{TORCHRUN} {line}"));
            assert_eq!(refusal(command, Some(workers), ids), "", "{line}");
        }
        let shell = UserCommand::Shell("cd x && torchrun --node_rank=$RANK t.py".to_owned());
        assert_eq!(refusal(shell, Some(&[1, 1]), &[0, 1]), "");
    }

    #[test]
    fn torchs_launcher_that_would_wait_for_ever_is_refused() {
        let numbered = "give it --nnodes={num_hosts} --node_rank={rank} --master_addr=";
        let table = [
            ("t.py", &[1, 1][..], &[0, 1][..], numbered),
            ("--node_rank=0 t.py", &[1, 1], &[0, 1], numbered),
            ("--node_rank={host} t.py", &[1, 1], &[1, 2], numbered),
            ("t.py --node_rank={rank}", &[1, 1], &[0, 1], numbered),
            (
                "--node_rank={rank} t.py -x",
                &[2, 2],
                &[0, 1],
                "give what it starts: python3 t.py -x; or leave out --num-workers, and give the \
                 launcher --nproc_per_node=2 --nnodes={num_hosts}",
            ),
        ];
        for (line, workers, ids, fix) in table {
            let fault = refusal(words(&format!("{TORCHRUN} {line}")), Some(workers), ids);
            assert!(fault.contains(fix), "{line}: {fault}");
        }
        let shell = UserCommand::Shell("torchrun t.py".to_owned());
        let fault = refusal(shell, Some(&[1, 1]), &[0, 1]);
        assert!(
            fault.contains("--node_rank=$RANK --master_addr=$MASTER_ADDR"),
            "{fault}"
        );
    }

    #[test]
    fn commands_that_are_launchers() {
        let table = [
            (
                "torchrun --nproc-per-node 2 t.py -x",
                "torch",
                "python3 t.py -x",
            ),
            ("torchrun", "torch", "python3 train.py …"),
            ("nice /o/bin/torchrun t.py", "torch", "python3 t.py"),
            (
                "python3 -m torch.distributed.launch --nproc_per_node=2 -m mod.train --a b",
                "torch",
                "python3 -m mod.train --a b",
            ),
            (
                "/opt/bin/deepspeed --num_gpus 2 t.py",
                "DeepSpeed",
                "python3 t.py",
            ),
            (
                "python3 -m graphstorm.run.gs_node_classification --workspace /w --inference",
                "GraphStorm",
                "python3 train.py …; or put gs-launch before",
            ),
            (
                "python3 -m graphstorm.run.launch --num-trainers 4 own.py --cf c.yaml",
                "GraphStorm",
                "python3 own.py --cf c.yaml",
            ),
            (
                "python3 /dgl/tools/launch.py --num_trainers 2 python3",
                "DGL",
                "python3 train.py …; or take dgl-launch",
            ),
        ];
        for (line, name, inner) in table {
            let fault = refusal(words(line), None, &[0]);
            assert!(
                fault.contains(&format!("starts {name}'s launcher itself"))
                    && fault.contains(&format!("give what it starts: {inner}")),
                "{line}: {fault}"
            );
        }
    }

    #[test]
    fn commands_that_are_no_launchers() {
        let lines = [
            "python3 launch.py --lr 0.1",
            "python3 t.py --launcher torchrun",
            "./t.py torchrun",
            "python3 t.py -m torch.distributed.run",
            "python3 -m graphstorm.run.gsgnn_np.gsgnn_np --cf c.yaml",
            "python3 deepspeed.py",
            "env A=deepspeed python3 t.py --deepspeed c.json",
            "hostname",
        ];
        for line in lines {
            assert_eq!(refusal(words(line), Some(&[2]), &[0]), "", "{line}");
        }
    }
}
