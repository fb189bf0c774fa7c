//! dgl.mk in the Makefile of a research repo: examples/dgl, on real hosts;
//! ../cases/slow_pipelines.txt has it on this machine.

use std::path::PathBuf;
use support::{
    Cluster, made_by, partition, python_with_dgl, read, root, scratch, sh, tools, write,
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
fn every_workspace_gives_its_job_a_name_that_dgl_spawn_accepts() {
    let folder = example();
    for (workspace, job) in [
        ("~/job", "job"),
        ("~/job/", "job"),
        ("/srv/a.b//", "a.b"),
        ("~/my job", "my-job"),
        ("~/jobs@home/try 1/", "try-1"),
        ("~/me@home", "me-home"),
    ] {
        let dry = make(&format!("-n train WORKSPACE='{workspace}'"));
        sh(&folder, &dry)
            .ends(0)
            .out_has(&format!(" --job '{job}' "))
            .out_has(&format!(" --workspace '{workspace}' "));
    }
}

#[test]
fn after_another_attempt_results_come_from_its_hosts() {
    let folder = example();
    for goal in ["fetch", "reap"] {
        let dry = make(&format!("-n {goal} WORKSPACE=/w FETCH=x SPARES=s RETRY="));
        let of = |retry: u32| sh(&folder, &dry.replace("RETRY=", &format!("RETRY={retry}")));
        of(0).ends(0).out_has("ipconf-check").out_lacks("pushed");
        of(2)
            .ends(0)
            .out_has("pushed.jsonl")
            .out_lacks("ipconf-check");
    }
}

/// A value keeps the blanks before a comment, and with -j goals without an order run at once.
#[test]
fn make_is_used_as_people_use_it() {
    let folder = example();
    write(
        &folder,
        "blanks.mk",
        "WORKSPACE = /srv/my job # w\nHOSTS = ip.txt # h\nRESULTS = r # r\nSPARES = s # s\n",
    );
    let dry = make("-n -f Makefile -f blanks.mk train fetch RETRY=1");
    sh(&folder, &dry)
        .ends(0)
        .out_has("'/srv/my job'")
        .out_has("'ip.txt'")
        .out_has("'s'")
        .out_has("'r'")
        .out_has("'my-job'")
        .out_lacks("my job '");
    let stubs = "mkdir bin; for name in ipconf-check host-probe part-map part-push dgl-env
        do printf '#!/bin/sh\ncat\n' >bin/$name; done
        printf '#!/bin/sh\nsleep 1; echo trained; mkdir -p .dgl-run/logs; : >.dgl-run/logs/run.jsonl
        ' >bin/dgl-spawn; cp bin/dgl-spawn bin/gs-launch
        printf '#!/bin/sh\necho fetched\n' >bin/part-pull; chmod +x bin/*
        printf '#!/bin/sh\necho why\n' >bin/dgl-why; cp bin/part-map bin/gs-copy; chmod +x bin/*";
    sh(&folder, stubs).ends(0);
    for (file, goals) in [
        (
            format!("{}/dgl.mk", root().display()),
            "WORKSPACE=/w TRAIN=t FETCH=x",
        ),
        (
            format!("{}/examples/graphstorm/Makefile", root().display()),
            "",
        ),
    ] {
        let of = |order: &str| {
            let make = format!("PATH=$PWD/bin:$PATH make -j4 -s -f '{file}' {order} {goals}");
            sh(
                &folder,
                &format!("{make} </dev/null | grep -e trained -e fetched -e '^why$'"),
            )
        };
        of("fetch train").gives(0, "trained\nfetched\n");
        of("why train").gives(0, "trained\nwhy\n");
        of("fetch").gives(0, "fetched\n");
    }
}

#[test]
fn two_makes_of_one_directory_do_not_mix_their_records() {
    let folder = scratch();
    let stubs = "mkdir bin; for name in ipconf-check host-probe part-map part-push dgl-spawn
        do printf '#!/bin/sh\nexec cat\n' >bin/$name; done
        printf '#!/bin/sh\nfor last; do :; done; echo \"$last\"; sleep 1; echo \"$last\"\n' \
            >bin/dgl-env; cp bin/dgl-env bin/part-map; chmod +x bin/*";
    sh(&folder, stubs).ends(0);
    let train = format!(
        "PATH=$PWD/bin:$PATH make -s -I '{0}' -f '{0}/dgl.mk' train WORKSPACE=/w </dev/null",
        root().display()
    );
    let both = format!(
        "{train} TRAIN=one MAP_FLAGS=one >1 & {train} TRAIN=two MAP_FLAGS=two >2; wait; cat 1 2"
    );
    sh(&folder, &both).gives(0, "one\none\ntwo\ntwo\n");
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
    run("push").ends(0).out_has("host 1 (10.77.0.2) is skipped");
    run("fetch").ends(0);
    let taken = read(&folder, "results/h1/ip_config.txt");
    let addresses: Vec<_> = taken.lines().map(|line| line.split(' ').next()).collect();
    assert_eq!(addresses, [Some("10.77.0.1"), Some("10.77.0.3")]);
    run("reap").ends(0);
    cluster
        .sh(&folder, &make("push WORKSPACE=/srv/job NEED=3 PYTHON=none"))
        .ends(2)
        .out_has("2 of 3 hosts are suitable");
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
