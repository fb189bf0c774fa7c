//! README: each of its commands runs on real hosts, and prints what it shows there.

use serde_json::Value;
use support::{Cluster, read, root, scratch, sh, write};

/// Fields that differ from run to run.
const VOLATILE: [&str; 3] = ["mtime_s", "mtime_nsec", "elapsed_ms"];

const TRAIN: &str = r#"import os
rank, host = os.environ["RANK"], os.environ["GROUP_RANK"]
assert open(f"shards/{host}.npz").read() == f"shard of {host}\n"
open(f"model-{rank}.pt", "w").write(rank)
print("step 0 loss 1.2")
"#;

/// The indented blocks of README, without the indent.
fn blocks(readme: &str) -> Vec<String> {
    let mut blocks = vec![String::new()];
    for line in readme.lines() {
        match line.strip_prefix("    ") {
            Some(line) => *blocks.last_mut().unwrap() += &format!("{line}\n"),
            None => blocks.push(String::new()),
        }
    }
    blocks.retain(|block| !block.is_empty());
    blocks
}

/// The commands of a block, each with what it prints.
fn commands(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut commands = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command, Vec::new())),
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("no command: {block}"),
        }
    }
    commands
}

/// A line without what differs from run to run, and from machine to machine.
fn comparable(line: &str) -> String {
    if let Ok(mut record) = serde_json::from_str::<Value>(line) {
        for field in VOLATILE {
            if let Some(value) = record.get_mut(field) {
                assert!(value.is_number(), "{line}");
                *value = Value::Null;
            }
        }
        return record.to_string();
    }
    let is_number = |cell: &&str| cell.bytes().all(|byte| byte.is_ascii_digit());
    let cell = |cell| if is_number(&cell) { "N" } else { cell };
    let cells: Vec<&str> = line.split('\t').map(cell).collect();
    match line.split_once(" after ") {
        Some((before, _)) => before.to_owned(),
        None => cells.join("\t"),
    }
}

/// The lines in order: hosts report in that of their ends.
fn sorted<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = lines.map(comparable).collect();
    lines.sort();
    lines
}

#[test]
fn readme_is_short() {
    let words = std::fs::read_to_string(root().join("README.md")).unwrap();
    assert!(words.split_whitespace().count() <= 1200);
}

#[test]
fn real_hosts_do_what_readme_says() {
    let folder = scratch();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let cluster = Cluster::up(2);
    let names = "Host gpu1\n  HostName 10.77.0.1\nHost gpu2\n  HostName 10.77.0.2\n";
    write(&cluster.0.join("h1/ssh"), "config", names);
    write(&folder, "code/train.py", TRAIN);
    for host in 0..2 {
        write(
            &folder,
            format!("shards/{host}.npz"),
            format!("shard of {host}\n"),
        );
    }
    // hosts share the home of this machine, so each gets a folder of its own there
    let home = sh(&folder, "eval echo ~$(id -un)").out.trim().to_owned();
    let made = sh(&folder, &format!("mkdir {home}/job")).status == 0;
    for host in 1..=2 {
        let mount = format!("mkdir /srv/job && mount --bind /srv/job {home}/job");
        cluster.on(host, &mount).ends(0);
    }
    let blocks = blocks(&readme);
    let block = |begin: &str| {
        blocks
            .iter()
            .find(|block| block.starts_with(begin))
            .unwrap()
    };

    let ran = cluster.run(&folder, block("printf"));
    ran.err_has("dgl-spawn: job demo ended well after ");
    let fetch = "ipconf-check ip_config.txt | part-pull --workspace '~/job' --to results\n'*.pt'";
    assert!(readme.contains(fetch));
    cluster.run(&folder, &fetch.replace('\n', " "));
    let why = cluster.run(&folder, "dgl-why logs/run.jsonl; cat results/*/model-3.pt");
    assert!(
        why.out.contains("ended well") && why.out.ends_with('3'),
        "{}",
        why.out
    );

    for host in 1..=2 {
        cluster.on(host, "rm -r /srv/job/*").ends(0);
    }
    let here = folder.display().to_string();
    let mut tried = 0;
    for (command, shown) in blocks
        .iter()
        .filter(|block| block.starts_with("$ "))
        .flat_map(|block| commands(block))
    {
        let ran = cluster.sh(&folder, &format!("{{ {command}; }} 2>&1"));
        let printed = ran
            .out
            .replace(&here, "/home/ann/demo")
            .replace(&home, "/home/ann");
        let printed = printed.replace("10.77.0.", "10.0.0.");
        assert_eq!(
            sorted(printed.lines()),
            sorted(shown.into_iter()),
            "{command}\n{printed}"
        );
        tried += 1;
    }
    assert!(tried > 10, "{tried}");

    write(&folder, "Makefile", block("WORKSPACE"));
    let make = format!("make -I '{}' train && make -I '{0}' why", root().display());
    let ran = cluster.run(&folder, &make);
    ran.err_has("dgl-spawn: job job ended well after ");
    assert!(read(&folder, ".dgl-run/logs/run.jsonl").contains("summary"));
    cluster.assert_clean();
    if made {
        sh(&folder, &format!("rmdir {home}/job")).ends(0);
    }
}
