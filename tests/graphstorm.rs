//! GraphStorm 0.4 on real hosts, without its launcher: trained, inferred with, and its nodes named
//! as the user named them. `make test-graphstorm` runs it; the packages go into the user's cache.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Cluster, ip_config, ran, root, scratch};

const TASK: &str = "--cf nc.yaml --ip-config ip_config.txt --part-config data/g.json";

/// A script on the first host that must end well.
fn well(cluster: &Cluster, folder: &Path, script: &str) -> String {
    let ran = cluster.sh(folder, script);
    assert_eq!(ran.status, 0, "{script}\n{}\n{}", ran.out, ran.err);
    ran.out
}

#[test]
#[ignore = "make test-graphstorm runs it: minutes, and 700 MB of packages"]
fn graphstorm_on_real_hosts() {
    let made = ran(Command::new(root().join("tests/graphstorm/python.sh"))
        .output()
        .unwrap());
    assert_eq!(made.status, 0, "{}", made.err);
    let python = made.out.trim();
    let folder = scratch("graphstorm");
    ip_config(&folder, 2);
    fs::copy(
        root().join("tests/graphstorm/nc.yaml"),
        folder.join("nc.yaml"),
    )
    .unwrap();
    let rank = "from graphstorm.config import get_argument_parser as parser\n\
        print('local rank', parser().parse_known_args()[0].local_rank)\n";
    fs::write(folder.join("rank.py"), rank).unwrap();
    let cluster = Cluster::up("graphstorm", 2);
    let graph = root().join("tests/graphstorm/graph.py");
    let make = format!(
        "export DGLBACKEND=pytorch; {python} {} . && {python} -m \
         graphstorm.gconstruct.construct_graph --conf-file graph.json --output-dir out \
         --num-parts 2 --graph-name g --num-processes 1",
        graph.display()
    );
    well(&cluster, &folder, &make);

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
        assert!(
            ranks.contains(&format!("worker {rank}] local rank {local}\n")),
            "{ranks}"
        );
    }

    // what trainers read of one another is on storage that the hosts share: this folder
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
    let named = format!(
        "{python} -c 'import glob, pandas
for what in \"emb\", \"pred\":
    files = glob.glob(what + \"/_N/*.parquet\")
    names = pandas.concat(map(pandas.read_parquet, files))[\"nid\"]
    print(what, len(names), all(name.startswith(\"item-\") for name in names), names.is_unique)'"
    );
    let named = well(&cluster, &folder, &named);
    assert!(named.contains("emb 400 True True"), "{named}");
    assert!(
        named.contains("pred ") && !named.contains("False"),
        "{named}"
    );
}
