//! Commands that are launchers themselves, whose processes are not in the plan, and what they would
//! start.

use crate::shell::Word;
use record::error::Fault;
use record::quote;

/// A launcher that a command starts.
#[derive(Debug, PartialEq, Eq)]
pub struct StartsLauncher {
    kind: Kind,
    /// What it would start, if that can be recognised.
    inner: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Torch,
    DeepSpeed,
    Dgl,
    GraphStorm,
}

impl StartsLauncher {
    /// Whether it is torch's, which starts only the processes of one host; the others start those
    /// of a cluster.
    pub fn is_torchs(&self) -> bool {
        self.kind == Kind::Torch
    }

    /// The fault that refuses it, whose cure has what it would start.
    pub fn refused(&self) -> Fault {
        let name = match self.kind {
            Kind::Torch => "torch's launcher",
            Kind::DeepSpeed => "DeepSpeed's launcher",
            Kind::Dgl => "DGL's launcher",
            Kind::GraphStorm => "GraphStorm's launcher",
        };
        let problem = format!("starts {name} itself, whose processes the plan does not know");
        let inner = self.inner.as_deref().unwrap_or("python3 train.py …");
        let another_way = match self.kind {
            Kind::Torch => ", with --launcher torchrun where it needs that",
            Kind::GraphStorm => "; or put gs-launch before the line",
            _ => "",
        };
        Fault::usage("COMMAND", problem).fix(format!("give what it starts: {inner}{another_way}"))
    }
}

/// The launcher that a simple command starts. `script` is the position of the script or module of a
/// Python program, because a script may have an option with a launcher's name.
pub fn find(words: &[Word], script: Option<usize>) -> Option<StartsLauncher> {
    let end = script.map_or_else(
        || {
            words
                .iter()
                .take_while(|word| !word.text.ends_with(".py"))
                .count()
        },
        |script| script + 1,
    );
    for (at, word) in words.iter().take(end).enumerate() {
        let is_module = at > 0 && words[at - 1].text == "-m";
        let behind = &words[at + 1..];
        let found = match word.text.rsplit('/').next().unwrap_or_default() {
            "torchrun" => (Kind::Torch, script_of(behind)),
            "torch.distributed.run" | "torch.distributed.launch" if is_module => {
                (Kind::Torch, script_of(behind))
            }
            "deepspeed" if script.is_none() => (Kind::DeepSpeed, script_of(behind)),
            "graphstorm.run.launch" if is_module => (Kind::GraphStorm, script_of(behind)),
            module if is_module && module.starts_with("graphstorm.run.gs_") => {
                (Kind::GraphStorm, of_graphstorm(module, behind))
            }
            "launch.py" if Some(at) == script && has_trainers(behind) => (Kind::Dgl, last(behind)),
            _ => continue,
        };
        let (kind, inner) = found;
        return Some(StartsLauncher { kind, inner });
    }
    None
}

fn shown<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(quote::shown).collect();
    words.join(" ")
}

/// The script or module that follows the options of a launcher.
fn script_of(words: &[Word]) -> Option<String> {
    let begins = |at: &usize| {
        let script = words[*at].text.ends_with(".py");
        script || (words[*at].text == "-m" && words.len() > at + 1)
    };
    let at = (0..words.len()).find(begins)?;
    let script = words[at..].iter().map(|word| word.text.as_str());
    Some(format!("python3 {}", shown(script)))
}

/// Whether the words have DGL's --num_trainers, so that `launch.py` is DGL's and not a script of
/// the user's.
fn has_trainers(words: &[Word]) -> bool {
    words
        .iter()
        .any(|word| word.text.replace('_', "-").starts_with("--num-trainers"))
}

/// The last word, which is the command of launch.py.
fn last(words: &[Word]) -> Option<String> {
    let command = &words.last()?.text;
    command.contains(' ').then(|| command.clone())
}

/// Options that GraphStorm's launcher takes for itself, each with a value.
const OF_LAUNCHER: [&str; 14] = [
    "--ssh-port",
    "--ssh-username",
    "--verbose",
    "--workspace",
    "--num-trainers",
    "--num-omp-threads",
    "--num-samplers",
    "--num-servers",
    "--num-server-threads",
    "--graph-format",
    "--do-nid-remap",
    "--output-chunk-size",
    "--preserve-input",
    "--with-shared-fs",
];

/// The script that GraphStorm's launcher of 0.4 and 0.5 starts for a task, with its arguments.
fn of_graphstorm(module: &str, words: &[Word]) -> Option<String> {
    let has = |flag: &str| words.iter().any(|word| word.text == flag);
    let (infers, of_text) = (has("--inference"), has("--lm-encoder-only"));
    let gnn_or_text = |folder: &str, short: &str| match (infers, of_text) {
        (true, true) => format!("{folder}.{short}_infer_lm"),
        (true, false) => format!("{folder}.{short}_infer_gnn"),
        (false, true) => format!("{folder}.gsgnn_lm_{short}"),
        (false, false) => format!("{folder}.gsgnn_{short}"),
    };
    let gnn = |folder: &str, short: &str| match infers {
        true => format!("{folder}.{short}_infer_gnn"),
        false => format!("{folder}.gsgnn_{short}"),
    };
    let script = match module.strip_prefix("graphstorm.run.gs_")? {
        "node_classification" | "node_regression" => gnn("gsgnn_np", "np"),
        "edge_classification" | "edge_regression" => gnn_or_text("gsgnn_ep", "ep"),
        "link_prediction" => gnn_or_text("gsgnn_lp", "lp"),
        "multi_task_learning" => gnn("gsgnn_mt", "mt"),
        "gen_node_embedding" => "gsgnn_emb.gsgnn_node_emb".to_owned(),
        "gnn_distillation" => "gsgnn_dt.distill_gnn".to_owned(),
        _ => return None,
    };
    let mut kept = Vec::new();
    let mut words = words.iter().map(|word| word.text.as_str()).peekable();
    while let Some(word) = words.next() {
        let name = word.split('=').next().unwrap_or_default();
        match name {
            "--inference" | "--lm-encoder-only" => {}
            "--extra-envs" => while words.next_if(|word| !word.starts_with("--")).is_some() {},
            name if OF_LAUNCHER.contains(&name) => {
                if !word.contains('=') {
                    words.next();
                }
            }
            _ => kept.push(word),
        }
    }
    let arguments = shown(kept);
    Some(format!("python3 -m graphstorm.run.{script} {arguments}"))
}

#[cfg(test)]
mod tests {
    use crate::command::UserCommand;
    use std::ffi::OsString;

    fn cure(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let launcher = UserCommand::Words(words).launcher();
        launcher.map_or_else(String::new, |launcher| launcher.refused().to_string())
    }

    #[test]
    fn what_launchers_would_start() {
        let table = [
            (
                "torchrun --nproc-per-node 2 t.py -x",
                "torch's launcher",
                "python3 t.py -x",
            ),
            (
                "python3 -m torch.distributed.launch --nproc_per_node=2 -m mod.train --a b",
                "torch's launcher",
                "python3 -m mod.train --a b",
            ),
            (
                "/opt/bin/deepspeed --num_gpus 2 t.py",
                "DeepSpeed's launcher",
                "python3 t.py",
            ),
            ("torchrun", "torch's launcher", "python3 train.py …"),
            (
                "python3 -m graphstorm.run.gs_node_classification --workspace /w --num-trainers=4 \
                 --part-config g.json --extra-envs A=1 B=2 --cf c.yaml --inference",
                "GraphStorm's launcher",
                "python3 -m graphstorm.run.gsgnn_np.np_infer_gnn --part-config g.json --cf c.yaml",
            ),
            (
                "python3 -m graphstorm.run.gs_edge_regression --lm-encoder-only --cf c.yaml",
                "GraphStorm's launcher",
                "python3 -m graphstorm.run.gsgnn_ep.gsgnn_lm_ep --cf c.yaml",
            ),
            (
                "python3 -m graphstorm.run.launch --num-trainers 4 own.py --cf c.yaml",
                "GraphStorm's launcher",
                "python3 own.py --cf c.yaml",
            ),
        ];
        for (line, name, inner) in table {
            let told = cure(line);
            assert!(
                told.contains(&format!("starts {name} itself"))
                    && told.contains(&format!("give what it starts: {inner}")),
                "{line}: {told}"
            );
        }
        let dgl = "python3 ~/dgl/tools/launch.py --num_trainers 2 'cd code; python3 t.py -x'";
        let told = UserCommand::Shell(dgl.to_owned())
            .launcher()
            .unwrap()
            .refused();
        assert!(
            told.to_string()
                .contains("give what it starts: cd code; python3 t.py -x")
        );
    }

    #[test]
    fn what_is_no_launcher() {
        let lines = [
            "python3 launch.py --lr 0.1",
            "python3 t.py --launcher torchrun",
            "python3 t.py -m torch.distributed.run",
            "python3 -m graphstorm.run.gsgnn_np.gsgnn_np --cf c.yaml",
            "python3 deepspeed.py",
            "env A=deepspeed python3 t.py --deepspeed c.json",
            "hostname",
        ];
        for line in lines {
            assert_eq!(cure(line), "", "{line}");
        }
    }
}
