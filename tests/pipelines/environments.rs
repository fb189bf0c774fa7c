//! host-probe --venv and --conda: the environment is found on each host, and the job runs in it.

use support::{Cluster, PYTHON_WITH_STAND_IN, Ran, ip_config, partition, scratch, write};

/// What a Python says of itself.
const WHERE: &str = "import os, shutil, sys; print(sys.prefix, shutil.which('python3'), \
    os.environ.get('VIRTUAL_ENV'), os.environ.get('CONDA_PREFIX'), \
    os.environ.get('CONDA_DEFAULT_ENV'))";

fn went_well(ran: &Ran, lines: &[&str]) {
    ran.ends(0);
    lines.iter().for_each(|line| {
        assert!(
            ran.out.lines().any(|other| other == *line),
            "no line {line}:\n{}{}",
            ran.out,
            ran.err
        );
    });
}

#[test]
fn the_job_runs_in_its_environment_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    // a venv on each host, that of the third without dgl; on the second another one that conda
    // might have made
    let make = "for k in 1 2 3; do ssh h$k 'python3 -m venv --without-pip /srv/v && cd \
         /srv/v/lib/python3*/site-packages && mkdir dgl torch &&
          touch dgl/__init__.py torch/__init__.py' || exit; done
        ssh h2 'mkdir -p /srv/conda/envs && cp -a /srv/v /srv/conda/envs/gnn && mkdir \
            /srv/conda/envs/gnn/conda-meta' &&
        ssh h3 'rm -r /srv/v/lib/python3*/site-packages/dgl'";
    cluster.sh(&folder, make).ends(0);

    // a leading interpreter, one behind another program, and shell text
    write(&folder, "where.py", WHERE);
    let script = folder.join("where.py").display().to_string();
    let worker = |probe: &str, rest: &str| {
        cluster.sh(
            &folder,
            &format!(
                "ipconf-check ip.txt | {probe} | dgl-env --role worker \
            {rest} | dgl-spawn --format human"
            ),
        )
    };
    let all = [1, 2, 3].map(|k| {
        format!(
            "[10.77.0.{k} worker {}] /srv/v /srv/v/bin/python3 /srv/v None None",
            k - 1
        )
    });
    let all = all.each_ref().map(String::as_str);
    for command in [
        format!("-- python '{script}'"),
        format!("-- env python3 '{script}'"),
        format!("'cd / && python3 \"{script}\"'"),
    ] {
        went_well(&worker("host-probe --venv /srv/v", &command), &all);
    }
    let probes = "host-probe --host 0 --venv /srv/v | host-probe --host 1 --conda \
        /srv/conda/envs/gnn | host-probe --host 2";
    let each = worker(probes, &format!("--setup 'cd /' -- python3 '{script}'"));
    went_well(&each, &[all[0]]);
    let second = each
        .out
        .lines()
        .find(|line| line.starts_with("[10.77.0.2 "))
        .unwrap();
    assert!(
        second.ends_with(
            "] /srv/conda/envs/gnn /srv/conda/envs/gnn/bin/python3 None /srv/conda/envs/gnn gnn"
        ),
        "{second}"
    );
    let third = each
        .out
        .lines()
        .find(|line| line.starts_with("[10.77.0.3 "))
        .unwrap();
    assert!(
        third.ends_with(" None None None") && !third.contains("/srv/"),
        "{third}"
    );
    let own = worker(
        "host-probe --venv /srv/v",
        "--env PATH=/usr/bin:/bin -- python3 -c 'import shutil, sys; print(sys.prefix, \
         shutil.which(\"env\"))'",
    );
    went_well(&own, &["[10.77.0.1 worker 0] /srv/v /usr/bin/env"]);

    // a missing environment and a missing dgl are told of each host, before anything is copied
    let none = cluster.sh(
        &folder,
        "ipconf-check ip.txt >hosts.jsonl; host-probe --conda /srv/conda/envs/gnn <hosts.jsonl",
    );
    none.ends(74);
    let report = "host 0 (10.77.0.1): no such directory: /srv/conda/envs/gnn";
    none.err_has(report)
        .err_has("host 2 (10.77.0.3): no such")
        .err_lacks("host 1");
    let no_dgl = cluster.sh(
        &folder,
        "host-probe --venv /srv/v <hosts.jsonl >probed.jsonl",
    );
    no_dgl.ends(0);
    assert_eq!(no_dgl.err, "", "nobody has asked for dgl yet");

    // a graph has; then dgl-spawn asks the interpreter of the environment again
    partition(&folder, 3);
    write(
        &folder,
        "code/t.py",
        "import dgl, torch, sys; print(sys.executable)\n",
    );
    let plan = "part-map --part-config out/g.json --workspace /srv/job --script-folder code";
    let refused = cluster.sh(&folder, &format!("<probed.jsonl {plan}"));
    let report = "part-map: host 2 (10.77.0.3): no dgl in the job's environment, /srv/v, and";
    refused.ends(65).err_has(report);
    let packages = "cd /srv/v/lib/python3*/site-packages";
    let job = "<job.jsonl dgl-spawn --format human";
    let refused = cluster.sh(
        &folder,
        &format!(
            "ssh h3 '{packages} && cp -r torch dgl' && host-probe --venv /srv/v <hosts.jsonl |
             {plan} | part-push --format jsonl |
             dgl-env --num-trainers 1 -- python3 code/t.py >job.jsonl &&
             ssh h3 '{packages} && mv dgl no-dgl' && {job}"
        ),
    );
    refused.ends(74);
    let report = "host 2 (10.77.0.3): no module named dgl for /srv/v/bin/python3 (Python 3.";
    refused
        .err_has(report)
        .err_has_times("no module", 1)
        .err_has("fix: install dgl into that environment");
    let ran = cluster.sh(
        &folder,
        &format!("ssh h3 '{packages} && mv no-dgl dgl'; {job}"),
    );
    went_well(
        &ran,
        &[
            "[10.77.0.3 trainer 2] /srv/v/bin/python3",
            "[10.77.0.2 server 1] /srv/v/bin/python3",
        ],
    );
    cluster.assert_clean();
}

#[test]
fn real_hosts_with_other_versions_are_refused() {
    let folder = scratch();
    ip_config(&folder, 3);
    let cluster = Cluster::up(3);
    for (host, dgl) in [(1, "1.0.4"), (2, "2.1.0"), (3, "1.0.4")] {
        cluster.stand_in_for_dgl(host, dgl);
    }
    let probe = format!("ipconf-check ip.txt | host-probe --python {PYTHON_WITH_STAND_IN}");
    let refused = cluster.sh(&folder, &probe);
    let report =
        "host-probe: host 1 (10.77.0.2): has dgl 2.1.0, where host 0 (10.77.0.1) has 1.0.4";
    refused.ends(74).err_has(report);
    let later = format!("{probe} 2>/dev/null | dgl-env --role worker -- true");
    assert_ne!(cluster.sh(&folder, &later).status, 0);
    cluster
        .sh(&folder, &format!("{probe} --mixed-versions | jq -r .dgl"))
        .gives(0, "1.0.4\n2.1.0\n1.0.4\n")
        .err_has(", where host ");
}
