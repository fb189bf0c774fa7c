//! Compares the script's own options with the plan: DGL takes some settings from the environment,
//! and the script repeats them.

use crate::args::Args;
use crate::check;
use crate::command::UserCommand;
use crate::paths::{self, JobPaths};
use record::Host;

/// Warnings about options of the script that differ from what DGL reads from the environment. They
/// are not faults, because a script's options may mean something else.
pub fn warnings(
    command: &UserCommand,
    args: &Args,
    job: &JobPaths,
    graph_name: Option<&str>,
    hosts: &[Host],
) -> Vec<String> {
    const READ: &str = "trainers read the script's, servers the other";
    const NAME: &str = "trainers look for a graph of the name that the partition config has";
    const COUNT: &str = "DGL to 0.6.0 believes the script, and the job waits for ever for \
        processes that do not come";
    let given = command.script_args();
    let mut warnings = Vec::new();
    let mut compare = |names: &[&str], ours: &str, is_same: &dyn Fn(&str) -> bool, why: &str| {
        if let Some((name, theirs)) = option(&given, names).filter(|(_, theirs)| !is_same(theirs)) {
            warnings.push(format!("the script's {name} {theirs} is not {ours}: {why}"));
        }
    };
    let part_config = job.part_config.as_deref().unwrap_or_default();
    for (names, ours) in [
        (&["ip_config"][..], job.ip_config.as_str()),
        (&["part_config", "conf_path"], part_config),
    ] {
        let is_same = |theirs: &str| {
            let is_elsewhere = !command.stays() && !theirs.starts_with('/');
            is_elsewhere || paths::same(job.workspace.as_deref(), ours, theirs)
        };
        compare(names, ours, &is_same, READ);
    }
    if let Some(name) = graph_name {
        compare(&["graph_name"], name, &|theirs| theirs == name, NAME);
    }
    // up to 0.6.0 the script's initialize() sets them; later the environment does
    if !hosts
        .iter()
        .all(|host| check::is_within(&host.facts.dgl, (0, 6, 1)..))
    {
        for (name, flag, count) in [
            ("num_workers", "--num-samplers", args.num_samplers),
            ("num_servers", "--num-servers", args.num_servers.into()),
        ] {
            let is_same = |theirs: &str| theirs.parse() == Ok(count);
            compare(&[name], &format!("{flag} {count}"), &is_same, COUNT);
        }
    }
    warnings
}

/// The last value of an option, as argparse takes it, with the option as it was written:
/// `--ip_config X`, `--ip-config=X`.
pub fn option<'a>(args: &'a [Option<String>], names: &[&str]) -> Option<(&'a str, &'a str)> {
    let named = |word: &str| {
        word.strip_prefix("--")
            .is_some_and(|name| names.contains(&name.replace('-', "_").as_str()))
    };
    let mut found = None;
    for (at, word) in args.iter().enumerate() {
        let Some(word) = word else { continue };
        match word.split_once('=') {
            Some((name, value)) if named(name) => found = Some((name, value)),
            None if named(word) => {
                found = args
                    .get(at + 1)
                    .and_then(|value| Some((word.as_str(), value.as_deref()?)));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::ffi::OsString;

    fn warnings_for(command: &str, dgl: Option<&str>) -> String {
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let command = match command.strip_prefix("sh: ") {
            Some(text) => UserCommand::Shell(text.to_owned()),
            None => UserCommand::Words(words),
        };
        let mut host = Host::default();
        host.facts.dgl = dgl.map(str::to_owned);
        let job = JobPaths {
            workspace: Some("/ws".to_owned()),
            part_config: Some("data/g.json".to_owned()),
            ip_config: "ip_config.txt".to_owned(),
        };
        let args = Args::parse_from(["dgl-env", "--num-trainers=1", "--num-samplers=2", "t"]);
        warnings(&command, &args, &job, Some("g"), &[host]).join("; ")
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn what_the_script_is_told_is_held_against_the_plan() {
        let fine = [
            "python3 t.py --ip_config ip_config.txt --part_config data/g.json --graph_name g \
             --num_workers 2 --num_servers 1",
            "python3 t.py --ip-config=/ws/ip_config.txt --part-config ./data/g.json --graph-name=g",
            "python3 t.py --ip_config other.txt --ip_config ip_config.txt",
            "python3 t.py --ip_config",
            "python3 t.py --ip_configuration other.txt",
            "sh: python3 t.py --ip_config $IP --graph_name \"$G\"",
            "sh: cd code && python3 t.py --ip_config ../ip_config.txt",
            "sh: echo --graph_name h; python3 t.py",
            "sh: \"$PYTHON\" t.py --graph_name h",
        ];
        for command in fine {
            assert_eq!(warnings_for(command, None), "", "{command}");
        }
        let table = [
            (
                "python3 t.py --ip_config other.txt",
                "the script's --ip_config other.txt is not ip_config.txt: trainers read",
            ),
            (
                "python3 t.py --part-config=g.json",
                "the script's --part-config g.json is not data/g.json",
            ),
            (
                "python3 t.py --conf_path g.json",
                "the script's --conf_path g.json is not data/g.json",
            ),
            (
                "python3 t.py --graph-name h",
                "the script's --graph-name h is not g",
            ),
            (
                "python3 t.py --num_workers 4",
                "the script's --num_workers 4 is not --num-samplers 2: DGL to 0.6.0",
            ),
            (
                "python3 t.py --num_servers=x",
                "the script's --num_servers x is not --num-servers 1",
            ),
            ("./t.py --graph_name h", "--graph_name h"),
            ("numactl -N0 python3 -m t --graph_name h", "--graph_name h"),
            (
                "sh: x && python3 t.py --graph_name 'h i' >log",
                "--graph_name h i is not g",
            ),
            (
                "sh: cd code && python3 t.py --ip_config /ip.txt",
                "--ip_config /ip.txt",
            ),
        ];
        for (command, warning) in table {
            assert!(
                warnings_for(command, None).contains(warning),
                "{command}: {}",
                warnings_for(command, None)
            );
        }
        let workers = "python3 t.py --num_workers 4";
        assert!(warnings_for(workers, Some("0.6.0post1")).contains("--num_workers"));
        assert_eq!(
            warnings_for(workers, Some("0.6.1")),
            "",
            "it reads the environment"
        );
    }
}
