//! GraphStorm 0.4 and 0.5 on real hosts, without its launcher and through gs-launch: trained,
//! inferred with, and its nodes named as the user named them. `make test-graphstorm` runs it, for
//! the versions in GRAPHSTORM_VERSIONS; the packages go into the user's cache.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use support::{Cluster, assert_has, ip_config, ran, root, scratch, write};

const TASK: &str = "--cf nc.yaml --ip-config ip_config.txt --part-config data/g.json";

/// A script on the first host that must end well.
fn well(cluster: &Cluster, folder: &Path, script: &str) -> String {
    let ran = cluster.sh(folder, script);
    ran.ends(0);
    ran.out
}

/// Does it with the Python of each version.
fn with_each_version(does: impl Fn(&str)) {
    let versions = std::env::var("GRAPHSTORM_VERSIONS").unwrap_or_else(|_| "0.4 0.5".to_owned());
    for version in versions.split_whitespace() {
        let made = ran(Command::new(root().join("tests/graphstorm/python.sh"))
            .arg(version)
            .output()
            .unwrap());
        assert_eq!(made.status, 0, "GraphStorm {version}: {}", made.err);
        println!("GraphStorm {version}");
        does(made.out.trim());
    }
}

/// A graph of two partitions, made by GraphStorm, in the directory `out`.
fn construct(cluster: &Cluster, folder: &Path, python: &str, out: &str) {
    fs::copy(
        root().join("examples/graphstorm/nc.yaml"),
        folder.join("nc.yaml"),
    )
    .unwrap();
    let graph = root().join("tests/graphstorm/graph.py");
    let make = format!(
        "export DGLBACKEND=pytorch; {python} {} . && {python} -m \
         graphstorm.gconstruct.construct_graph --conf-file graph.json --output-dir {out} \
         --num-parts 2 --graph-name g --num-processes 1",
        graph.display()
    );
    well(cluster, folder, &make);
}

/// How many nodes the results in a directory have, and that each has the user's name, once.
fn count_named(cluster: &Cluster, folder: &Path, python: &str, results: &str) -> usize {
    // threads of pyarrow's abort some processes that end otherwise
    let count = format!(
        "{python} -c 'import glob, os, pandas
names = pandas.concat(map(pandas.read_parquet, glob.glob(\"{results}/_N/*.parquet\")))[\"nid\"]
assert names.is_unique and all(name.startswith(\"item-\") for name in names)
print(len(names), flush=True)
os._exit(0)'"
    );
    well(cluster, folder, &count).trim().parse().unwrap()
}

#[test]
#[ignore = "make test-graphstorm runs it: minutes, and gigabytes of packages"]
fn gs_launch_on_real_hosts() {
    with_each_version(launch_by_gs_launch);
}

fn launch_by_gs_launch(python: &str) {
    let folder = scratch();
    let cluster = Cluster::up(2);
    write(&folder, "ip_config.txt", "10.77.0.1\n10.77.0.2\n");
    construct(&cluster, &folder, python, "data");
    let shared = folder.display();
    let line = |workspace: &str| {
        format!(
            "{python} -m graphstorm.run.gs_node_classification --workspace {workspace} \
             --num-trainers 2 --num-servers 1 --num-samplers 1 --part-config data/g.json \
             --ip-config ip_config.txt --cf nc.yaml"
        )
    };
    let own = line("/srv/job");
    well(&cluster, &folder, &format!("gs-copy {own}"));
    let results = |name: &str| {
        format!("--save-model-path {shared}/{name}/model --save-embed-path {shared}/{name}/emb")
    };
    let begun = Instant::now();
    well(
        &cluster,
        &folder,
        &format!("gs-launch {own} {}", results("ours")),
    );
    let ours = begun.elapsed();
    cluster.assert_clean();
    assert_eq!(count_named(&cluster, &folder, python, "ours/emb"), 400);

    // GraphStorm's own launcher, whose hosts must share all files; torch 1.13 needs two settings
    // to start at all under Python 3.11
    let reference = format!("{} {}", line(&shared.to_string()), results("theirs"));
    let begun = Instant::now();
    let settings = "--extra-envs PET_REDIRECTS=1 PET_TEE=1";
    well(&cluster, &folder, &format!("{reference} {settings}"));
    println!(
        "gs-launch {ours:.1?}, GraphStorm's launcher {:.1?}",
        begun.elapsed()
    );
    let files = |name: &str| well(&cluster, &folder.join(name), "find . -type f | sort");
    assert_eq!(files("ours"), files("theirs"));
    infer_on_own_disks(&cluster, &folder, python, &own);
}

/// Inference with a disk for each host: the model is brought there, results stay there.
fn infer_on_own_disks(cluster: &Cluster, folder: &Path, python: &str, own: &str) {
    fs::rename(folder.join("ours/model"), folder.join("model")).unwrap();
    let infer = format!(
        "{own} --inference --restore-model-path model/epoch-1 --save-prediction-path pred \
         --with-shared-fs false"
    );
    well(
        cluster,
        folder,
        &format!("gs-copy {infer} && gs-launch {infer}"),
    );
    cluster.assert_clean();
    let fetch =
        "ipconf-check ip_config.txt | part-pull --workspace /srv/job --to pulled 'pred/_N/*'";
    well(
        cluster,
        folder,
        &format!(
            "{fetch} && mkdir -p all/_N && \
        for host in pulled/*; do for file in $host/pred/_N/*.parquet; do \
        cp $file all/_N/${{host##*/}}-${{file##*/}}; done; done"
        ),
    );
    assert!(count_named(cluster, folder, python, "all") > 0);
    // what would wait for ever is told before it starts
    let report = format!("gs-launch --print {infer} | sed 's/fs False/fs True/' | head -n 7");
    cluster
        .sh(folder, &format!("{report} >plan; echo : >>plan; . ./plan"))
        .err_has("worker 0 would wait for ever");
}

#[test]
#[ignore = "make test-graphstorm runs it: minutes, and gigabytes of packages"]
fn graphstorm_on_real_hosts() {
    with_each_version(launch_by_dgl_spawn);
}

fn launch_by_dgl_spawn(python: &str) {
    let folder = scratch();
    ip_config(&folder, 2);
    let rank = "from graphstorm.config import get_argument_parser as parser\n\
        print('local rank', parser().parse_known_args()[0].local_rank)\n";
    write(&folder, "rank.py", rank);
    let cluster = Cluster::up(2);
    construct(&cluster, &folder, python, "out");

    // each host has its own part on its own disk
    let push = format!(
        "ipconf-check ip.txt | host-probe --python {python} | part-map --part-config out/g.json \
         --workspace /srv/job --extra nc.yaml --extra rank.py | part-push >pushed.jsonl"
    );
    well(&cluster, &folder, &push);
    let there = cluster
        .call(&["exec", "2", "find", "/srv/job/data", "-type", "f"])
        .out;
    for name in [
        "node_label_stats.json",
        "node_mapping.pt",
        "raw_id_mappings/_N/part-00000",
    ] {
        assert!(
            there.contains(&format!("/srv/job/data/{name}")),
            "{name}: {there}"
        );
    }

    let ranks = format!(
        "dgl-env --role worker --num-workers 2 --local-rank-arg -- {python} rank.py --cf nc.yaml \
         <pushed.jsonl | dgl-spawn --format human"
    );
    let ranks = well(&cluster, &folder, &ranks);
    for (rank, local) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        assert_has(&ranks, &format!("worker {rank}] local rank {local}\n"));
    }

    // what trainers read of one another is on storage that the hosts share: this directory
    let shared = folder.display();
    let job = |module: &str, more: &str| {
        format!(
            "dgl-env --num-trainers 2 --local-rank-arg -- {python} -m graphstorm.run.{module} \
             {TASK} {more} <pushed.jsonl | dgl-spawn --timeout 10m --format human"
        )
    };
    let saved = format!("--save-model-path {shared}/model --save-embed-path {shared}/emb");
    well(&cluster, &folder, &job("gsgnn_np.gsgnn_np", &saved));
    cluster.assert_clean();
    let saved = format!(
        "--inference --restore-model-path {shared}/model/epoch-1 --save-prediction-path \
         {shared}/pred"
    );
    well(&cluster, &folder, &job("gsgnn_np.np_infer_gnn", &saved));
    cluster.assert_clean();

    let remap = format!(
        "dgl-env --role worker -- {python} -m graphstorm.gconstruct.remap_result {TASK} \
         --save-embed-path {shared}/emb --save-prediction-path {shared}/pred --rank {{rank}} \
         --world-size {{world_size}} --with-shared-fs True --num-processes 1 <pushed.jsonl | \
         dgl-spawn --timeout 10m --format human"
    );
    well(&cluster, &folder, &remap);
    cluster.assert_clean();
    assert_eq!(count_named(&cluster, &folder, python, "emb"), 400);
    assert!(count_named(&cluster, &folder, python, "pred") > 0);
}
