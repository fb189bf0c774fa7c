//! README: each of its commands runs on real hosts, and prints what it shows there.

use crate::shown::Demo;
use support::{read, root, write};

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

#[test]
fn real_hosts_do_what_readme_says() {
    if support::only_root_can("mount on a host") {
        return;
    }
    let demo = Demo::start();
    let (folder, cluster) = (&demo.folder, &demo.cluster);
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks = blocks(&readme);
    let block = |begin: &str| {
        blocks
            .iter()
            .find(|block| block.starts_with(begin))
            .unwrap()
    };

    let ran = cluster.run(folder, block("printf"));
    ran.err_has("dgl-spawn: job demo finished after ");
    cluster.run(folder, block("ipconf-check ip_config.txt | part-pull"));
    let why = cluster.run(folder, "dgl-why logs; cat results/h1/model-3.pt");
    assert!(
        why.out.contains("The job finished") && why.out.ends_with('3'),
        "{}",
        why.out
    );

    for host in 1..=2 {
        cluster.on(host, "rm -r /srv/job/*").ends(0);
    }
    let with_output = blocks.iter().filter(|block| block.starts_with("$ "));
    let tried: usize = with_output.map(|block| demo.follow(block)).sum();
    assert!(tried > 10, "{tried}");

    write(folder, "Makefile", block("WORKSPACE"));
    let make = format!(
        "make -I '{}' train && make -I '{0}' fetch why",
        root().display()
    );
    let ran = cluster.run(folder, &make);
    ran.err_has("dgl-spawn: job job finished after ");
    assert!(read(folder, ".dgl-run/logs/run.jsonl").contains("summary"));
    demo.end();
}
