//! dgl.mk in the Makefile of a research repo: examples/dgl, on this machine and on real hosts.

use std::path::PathBuf;
use support::{
    Cluster, Ran, assert_has, made_by, partition, python_with_dgl, read, root, scratch, sh, tools,
    write,
};

/// A copy of the repo, as README tells a user to make one.
fn example() -> PathBuf {
    let folder = scratch();
    sh(
        &folder,
        &format!("cp -r '{}/examples/dgl/.' .", root().display()),
    )
    .ends(0);
    folder
}

fn make(args: &str) -> String {
    format!("make -I '{}' {args} 2>&1", root().display())
}

#[test]
fn tools_that_path_does_not_lead_to_are_those_of_the_checkout() {
    let folder = example();
    assert_eq!(
        sh(&folder, "find . -type l").out,
        "",
        "what is copied out leads nowhere else"
    );
    write(&folder, "ip_config.txt", "127.0.0.1\n");
    let built = tools().parent().unwrap().display().to_string();
    let probe = make("probe WORKSPACE=\"$PWD/ws\"");
    let script = format!(
        "export DGL_TOOLS_CONNECT=local CARGO_TARGET_DIR='{built}' PATH=/usr/bin:/bin; {probe}"
    );
    sh(&folder, &script).ends(0).out_has("127.0.0.1");
}

#[test]
fn slow_on_this_machine() {
    let folder = example();
    write(&folder, "ip_config.txt", "127.0.0.1\n");
    partition(&folder, 1);
    let here = |args: &str| -> Ran {
        let script = format!(
            "export DGL_TOOLS_CONNECT=local; {} WORKSPACE='{}'",
            make(args),
            folder.join("ws").display()
        );
        sh(&folder, &script)
    };

    assert!(
        here("-n").out.contains("Nothing to be done for 'all'"),
        "the repo's first target stays the first"
    );
    here("probe").ends(0).out_has("127.0.0.1");

    let pushed = here("push");
    pushed
        .ends(0)
        .out_has("7 files")
        .out_has("; 0 there already");
    assert!(
        here("push").out.contains("0 files, 0 B; 7 there already"),
        "nothing is pushed when nothing changed"
    );
    write(&folder, "code/new.py", "x");
    std::fs::remove_file(folder.join("ws/data/part0/graph.dgl")).unwrap();
    assert!(
        here("push").out.contains("2 files"),
        "what is new here, and what was lost there"
    );

    let job = concat!(
        r#"TRAIN="sh -c 'echo rank \$\$RANK of \$\$WORLD_SIZE: \$\$GREETING' x" "#,
        r#"ENV_FLAGS="--env 'GREETING=two  words'""#
    );
    here(&format!("train NUM_TRAINERS=2 {job}"))
        .ends(0)
        .out_has("trainer 1] rank 1 of 2: two words");
    let logs = here("logs").out;
    assert_has(&logs, "trainer-1.log");
    assert_has(&logs, "rank 1 of 2");
    here("train NUM_TRAINERS=1 TRAIN='sh -c \"exit 7\"'")
        .ends(2)
        .out_has("Error 7");
    let verdict = here("why").out;
    assert_has(&verdict, "status 7");
    let older = "dgl.mk: this run is older than the last push:";
    assert!(!here("why").out.contains(older));
    here("push MAP_FLAGS=--no-such-flag").ends(2);
    for shows in ["why", "logs"] {
        here(shows).ends(0).out_has(older);
    }
    assert!(
        !here("logs").out.contains("trainer-1.log"),
        "the run before the last is not shown"
    );
    assert!(folder.join(".dgl-run/logs/run-1/trainer-1.log").is_file());
    here("reap").ends(0);
    here(concat!(
        r#"train WORKERS=2 PART_CONFIG= NUM_SAMPLERS=3 "#,
        r#"TRAIN="sh -c 'echo worker \$\$RANK of \$\$WORLD_SIZE'""#
    ))
    .ends(0)
    .out_has("worker 1] worker 1 of 2");

    // a stage that fails, first or in the midst, fails make
    for (goal, args) in [
        ("push", "HOSTS=none.txt"),
        ("train", "MAP_FLAGS=--frobnicate"),
        ("reap", "HOSTS=none.txt"),
        ("train", "TRAIN="),
        ("train", "TRAIN='sh -c x' RETRY=1"),
    ] {
        here(&format!("{goal} {args}")).ends(2);
    }
    sh(&folder, &make("push WORKSPACE="))
        .ends(2)
        .out_has("set WORKSPACE, the directory of the job");
}

#[test]
fn on_real_hosts_as_many_are_taken_as_are_needed() {
    let folder = example();
    let cluster = Cluster::up(3);
    partition(&folder, 2);
    write(
        &folder,
        "ip_config.txt",
        "10.77.0.1\n10.77.0.2\n10.77.0.3\n",
    );
    cluster.call(&["stop", "2"]);
    let run = |goal: &str| {
        let line = format!(
            "{goal} WORKSPACE=/srv/job NEED=2 NEED_FLAGS='--port auto' PYTHON=none \
             FETCH=ip_config.txt"
        );
        cluster.sh(&folder, &make(&line))
    };
    run("push")
        .ends(0)
        .out_has("host 1 (10.77.0.2) is left out");
    run("fetch").ends(0);
    let taken = read(&folder, "results/h1/ip_config.txt");
    let addresses: Vec<_> = taken.lines().map(|line| line.split(' ').next()).collect();
    assert_eq!(addresses, [Some("10.77.0.1"), Some("10.77.0.3")]);
    run("reap").ends(0);
    cluster
        .sh(&folder, &make("push WORKSPACE=/srv/job NEED=3 PYTHON=none"))
        .ends(2)
        .out_has("2 of 3 hosts can be taken");
}

#[test]
fn real_dgl_by_make() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = example();
    let cluster = Cluster::up(2);
    let run = |goals: &str| {
        cluster.sh(
            &folder,
            &make(&format!(
                "{goals} WORKSPACE=/srv/job PYTHON='{python}' NUM_SERVERS=1 NUM_SAMPLERS=1"
            )),
        )
    };
    run("train").ends(0).out_has("loss fell from");
    assert!(folder.join(".dgl-run/logs/trainer-3.log").is_file());
    run("fetch").ends(0);
    assert!(folder.join("results/h0/model.pt").is_file());
    cluster.assert_clean();
}

/// The example for torch, as its user begins.
#[test]
fn the_example_for_torch_on_real_hosts() {
    let Some(python) = made_by("tests/dgl/python.sh", "torch") else {
        return;
    };
    let (folder, cluster) = Cluster::listed(2);
    let made = format!(
        "cp -r '{0}/examples/torch/.' . && mv ip.txt ip_config.txt && make -I '{0}' \
         PYTHON='{python}' WORKSPACE=/srv/job all train fetch 2>&1",
        root().display()
    );
    let ran = cluster.run(&folder, &made);
    ran.out_has("epoch 2: loss 0.0").out_has("on 4 ranks");
    sh(
        &folder,
        "test -s results/10.77.0.1/model.pt || test -s results/model.pt",
    )
    .ends(0);
    cluster.assert_clean();
}
