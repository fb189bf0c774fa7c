//! GLT (graphlearn-torch) on hosts with disks of their own, in both of its modes. `make test-glt`
//! runs it; the packages go into the user's cache.

use std::path::{Path, PathBuf};
use std::time::Instant;
use support::{Cluster, ip_config, made_by, root, scratch, sh};

const WORKER: &str = "python3 glt/sage.py worker --num_nodes {num_hosts} --node_rank {rank} \
     --master_addr {master_addr} --training_pg_master_port {master_port} \
     --train_loader_master_port {port:train} --test_loader_master_port {port:test}";
const SERVER: &str = "python3 glt/sage.py server --num_server_nodes {num_hosts} \
     --num_client_nodes 2 --node_rank {rank} --master_addr {master_addr} \
     --server_client_master_port {port:rpc}";
const CLIENT: &str = "python3 glt/sage.py client --num_server_nodes {store.num_hosts} \
     --num_client_nodes {world_size} --node_rank {rank} --master_addr {master_addr} \
     --training_pg_master_port {master_port} --server_addr {store.master_addr} \
     --server_client_master_port {store.port:rpc} \
     --train_loader_master_port {store.port:train} --test_loader_master_port {store.port:test}";

/// Hosts, and a directory with a graph of two parts in `graph`; what precedes each pipeline.
fn prepared(hosts: u32) -> Option<(Cluster, PathBuf, String)> {
    let python = made_by("tests/glt/python.sh", "GLT")?;
    let folder = scratch();
    ip_config(&folder, hosts);
    let make = root().join("tests/glt/graph.py");
    sh(&folder, &format!("{python} {} graph", make.display())).ends(0);
    let venv = Path::new(&python).ancestors().nth(2).unwrap();
    let probe = format!("host-probe --venv {}", venv.display());
    Some((Cluster::up(hosts), folder, probe))
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
    let Some((cluster, folder, probe)) = prepared(2) else {
        return;
    };
    let copy = format!(
        "ipconf-check ip.txt | {probe} | part-map --partitions graph --workspace /srv/job \
         --script-folder {}/tests/glt | part-push >pushed.jsonl",
        root().display()
    );
    cluster.run(&folder, &copy);
    // each host has its own part
    cluster
        .on(2, "cd /srv/job/graph; ls -d part*")
        .gives(0, "part1\n");
    let spawn = "dgl-spawn --job glt --timeout 5m --grace 2s";
    let job = format!("dgl-env --role worker -- {WORKER} <pushed.jsonl | {spawn}");
    assert_trained(&cluster, &folder, &job, 1);

    // one that is killed ends the other, and the samplers of both
    let long = job.replace(" <pushed", " --epochs 100000 <pushed");
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
    let Some((cluster, folder, probe)) = prepared(3) else {
        return;
    };
    // the first two hosts are servers, which have the parts
    let copy = format!(
        "head -n 2 ip.txt >servers.txt
         ipconf-check servers.txt | part-map --partitions graph --workspace /srv/job | \
         part-push >parts.jsonl || exit
         ipconf-check ip.txt | {probe} | part-map --workspace /srv/job \
         --script-folder {}/tests/glt | part-push >pushed.jsonl",
        root().display()
    );
    cluster.run(&folder, &copy);
    let job = format!(
        "dgl-env --program store --on 0-1 --env TRAIN={{port:train}} --env TEST={{port:test}} \
         -- {SERVER} <pushed.jsonl | dgl-env --program train --on 2 --num-workers 2 -- {CLIENT} | \
         dgl-spawn --job glt --timeout 5m --grace 2s"
    );
    assert_trained(&cluster, &folder, &job, 3);
    cluster
        .on(3, "ls /srv/job")
        .gives(0, "glt\nip_config.txt\nmodel.pt\n");
}
