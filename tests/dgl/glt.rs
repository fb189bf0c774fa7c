//! GLT (graphlearn-torch) on hosts with disks of their own, in both of its modes. `make test-glt`
//! runs it; the packages go into the user's cache.

use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{Cluster, ip_config, made_by, read, root, scratch, sh};

/// Hosts, and a directory with a graph of two parts in `graph`; the two pipelines of a script in
/// examples/glt, which copy and run.
fn prepared(hosts: u32, script: &str) -> Option<(Cluster, PathBuf, [String; 2])> {
    let python = made_by("tests/glt/python.sh", "GLT")?;
    let folder = scratch();
    ip_config(&folder, hosts);
    let make = format!(
        "mv ip.txt ip_config.txt; cp -r {0}/examples/glt/code . &&
         {python} {0}/tests/glt/graph.py graph",
        root().display()
    );
    sh(&folder, &make).ends(0);
    let venv = Path::new(&python).ancestors().nth(2).unwrap();
    let script = read(&root().join("examples/glt"), script)
        .replace("/data/venv", &venv.display().to_string())
        .replace("~/job", "/srv/job")
        .replace("--job sage", "--job glt --timeout 5m --grace 2s");
    let (copy, job) = script.trim_end().split_once("\n\ndgl-env ").unwrap();
    let pipelines = [copy.to_owned(), format!("dgl-env {job}")];
    Some((Cluster::up(hosts), folder, pipelines))
}

/// The job of a pipeline has finished, a model is on that host, and nothing is left.
fn assert_trained(cluster: &Cluster, folder: &Path, job: &str, host: u32) {
    let begun = Instant::now();
    let ran = cluster.run(folder, &format!("{job} >run.jsonl && cat run.jsonl"));
    println!("{:.1?}", begun.elapsed());
    let lines = ran.records("output");
    let accuracy = |line: &str| line.strip_prefix("accuracy ")?[..5].parse().ok();
    let accuracies: Vec<f32> = lines
        .iter()
        .filter_map(|output| accuracy(output["line"].as_str()?))
        .collect();
    println!("accuracies {accuracies:?}");
    assert!(accuracies.len() == 2 && accuracies.iter().all(|accuracy| *accuracy > 0.5));
    cluster.on(host, "test -s /srv/job/model.pt").ends(0);
    assert_nothing_left(cluster);
}

fn assert_nothing_left(cluster: &Cluster) {
    cluster.assert_clean();
    cluster.on(1, "ls /dev/shm").gives(0, "");
    cluster.on(2, "ls /dev/shm").gives(0, "");
}

#[test]
#[ignore = "make test-glt runs it: minutes, and 3.5 GB of packages"]
fn workers_of_glt_on_real_hosts() {
    let Some((cluster, folder, [copy, job])) = prepared(2, "workers.sh") else {
        return;
    };
    cluster.run(&folder, &copy);
    // each host has its own part
    cluster
        .on(2, "cd /srv/job/graph; ls -d part*")
        .gives(0, "part1\n");
    assert_trained(&cluster, &folder, &job, 1);

    // one that is killed ends the other, and the samplers of both
    let long = job.replace("sage.py worker", "sage.py worker --epochs 100000");
    let kill = format!(
        "rm run.jsonl; ({long} >run.jsonl; echo status $?; date +%s >end) & \
         until grep -qs 'epoch 1 ' run.jsonl || test -e end; do sleep 0.1; done; date +%s >begin; \
         dgl-reap --job glt --signal KILL --role worker --rank 1 <pushed.jsonl >killed.jsonl; \
         wait; echo $(($(cat end) - $(cat begin))) s"
    );
    let ran = cluster.run(&folder, &kill);
    println!("killed: {}", ran.out);
    ran.out_has("status 137\n").err_has("worker 1");
    assert_nothing_left(&cluster);
}

#[test]
#[ignore = "make test-glt runs it: minutes, and 3.5 GB of packages"]
fn servers_and_clients_of_glt_on_real_hosts() {
    let Some((cluster, folder, [copy, job])) = prepared(3, "servers.sh") else {
        return;
    };
    cluster.run(&folder, &copy);
    assert_trained(&cluster, &folder, &job, 3);
    // the first two hosts are servers, which have the parts
    cluster
        .on(3, "ls /srv/job")
        .gives(0, "code\nip_config.txt\nmodel.pt\n");
}
