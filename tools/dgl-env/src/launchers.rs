//! Commands that are launchers themselves, whose processes are not in the plan.

use crate::shell::Word;
use record::error::Fault;
use record::quote;

/// A launcher that a command starts.
pub struct StartedLauncher {
    /// Whether it is torch's, which starts only the processes of one host; the others start those
    /// of a cluster.
    pub is_torchs: bool,
    /// The fault that refuses it.
    pub refused: Fault,
}

/// The program, script or module of each launcher, whose it is, and advice besides giving what it
/// starts.
const LAUNCHERS: [(&str, &str, &str); 6] = [
    ("torchrun", "torch", WITH_TORCHRUN),
    ("-m torch.distributed.run", "torch", WITH_TORCHRUN),
    ("-m torch.distributed.launch", "torch", WITH_TORCHRUN),
    ("deepspeed", "DeepSpeed", ""),
    (
        "-m graphstorm.run",
        "GraphStorm",
        "; or put gs-launch before the line",
    ),
    ("launch.py", "DGL", "; or take dgl-launch"),
];

const WITH_TORCHRUN: &str = ", with --launcher torchrun where it needs that";

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
        let is_started = |(program, of, _): &&(&str, &str, &str)| {
            *program == name
                && match *of {
                    "DeepSpeed" => script.is_none(),
                    // a script of the user's may have this name
                    "DGL" => script == Some(index) && words.iter().any(is_num_trainers),
                    _ => true,
                }
        };
        Some((index, LAUNCHERS.iter().find(is_started)?))
    };
    let (index, (_, of, advice)) = (0..end).find_map(launcher)?;
    let problem = format!("starts {of}'s launcher itself, whose processes the plan does not know");
    let inner = script_of(&words[index + 1..]);
    let fix = format!("give what it starts: {inner}{advice}");
    Some(StartedLauncher {
        is_torchs: *of == "torch",
        refused: Fault::usage("COMMAND", problem).fix(fix),
    })
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

/// The script or module that follows the options of a launcher.
fn script_of(words: &[Word]) -> String {
    let begins = |index: &usize| {
        let is_module = words[*index].text == "-m" && words.len() > index + 1;
        is_module || words[*index].text.ends_with(".py")
    };
    let Some(script) = (0..words.len()).find(begins) else {
        return "python3 train.py …".to_owned();
    };
    let script = words[script..].iter().map(|word| &word.text);
    format!(
        "python3 {}",
        String::from_utf8_lossy(&quote::sh_words(script))
    )
}

#[cfg(test)]
mod tests {
    use crate::command::UserCommand;
    use std::ffi::OsString;

    fn refusal(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let launcher = UserCommand::Words(words).launcher();
        launcher.map_or_else(String::new, |launcher| launcher.refused.to_string())
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
            let fault = refusal(line);
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
            assert_eq!(refusal(line), "", "{line}");
        }
    }
}
