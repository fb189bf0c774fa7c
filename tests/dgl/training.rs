//! Real DGL on real hosts: a job trained to its end, the copied config loaded by DGL itself.

use std::path::Path;
use support::{Cluster, made_by, python_with_dgl, root, sh, with_s3};

/// What puts a graph into S3 and has the hosts download their parts from there, of which this
/// machine keeps the config only, and sends them no more than that.
fn fetched_from_s3(bin: &str, map: &str) -> String {
    format!(
        "{}
        $aws s3 cp --recursive --only-show-errors out s3://bucket/g/ && rm -r out/part* || exit
        ipconf-check ip.txt | dgl-env --role worker --workspace /srv/job \
          --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY --env AWS_DEFAULT_REGION -- \
          sh -c \"rm -rf data/part{{host}}; \
            $aws s3 cp --recursive --only-show-errors s3://bucket/g/part{{host}} data/new && \
            mv data/new data/part{{host}}\" | dgl-spawn --format human || exit
        ipconf-check ip.txt | {map} --parts remote | part-push >pushed.jsonl && \
        jq -es 'map(select(.type == \"pushed\").sent_bytes) | add < 9000' pushed.jsonl",
        with_s3(bin)
    )
}

#[test]
fn real_dgl_trains_to_its_end() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = Cluster::listed(2);
    let scripts = root().join("tests/dgl");
    sh(
        &folder,
        &format!(
            "DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts 2",
            scripts.display()
        ),
    )
    .ends(0);

    // DGL itself loads the copied config, by each of the three ways to name its files
    let s3 = made_by("tests/s3.sh", "server of S3");
    for (paths, config) in [
        ("workspace", "g.json"),
        ("absolute", "data/g.json"),
        ("config", "data/g.json"),
    ] {
        let map = format!(
            "part-map --part-config out/g.json --workspace /srv/job --paths {paths} \
             --script-folder '{}'",
            scripts.display()
        );
        let copy = match &s3 {
            Some(bin) if paths == "config" => fetched_from_s3(bin, &map),
            _ => format!("ipconf-check ip.txt | {map} | part-push >pushed.jsonl"),
        };
        let pushed = cluster.sh(&folder, &copy);
        pushed.ends(0);
        let load = format!(
            "<pushed.jsonl dgl-env --role worker 'exec \"{python}\" dgl/load.py {config} 2 $RANK' \
             | dgl-spawn --format human"
        );
        cluster
            .sh(&folder, &load)
            .ends(0)
            .out_has_times("loaded part", 2);
    }
    // by the path of the environment
    let prefix = Path::new(&python).ancestors().nth(2).unwrap();
    let kind = if prefix.join("conda-meta").exists() {
        "conda"
    } else {
        "venv"
    };
    let load = format!(
        "<pushed.jsonl host-probe --workspace /srv/job --{kind} '{}' | dgl-env --role worker -- \
         python3 dgl/load.py g.json 2 | dgl-spawn --format human",
        prefix.display()
    );
    cluster
        .sh(&folder, &load)
        .ends(0)
        .out_has_times("loaded part", 2);
    // by that of the interpreter
    let train = format!(
        "<pushed.jsonl host-probe --workspace /srv/job --python '{python}' | dgl-env \
         --num-trainers 2 --num-servers 2 --num-samplers 1 --num-omp-threads 1 -- \
         '{python}' dgl/train.py --ip-config ip_config.txt --part-config data/g.json \
         --num-epochs 3 | dgl-spawn --format human --log-dir logs"
    );
    cluster
        .sh(&folder, &train)
        .ends(0)
        .out_has("loss fell from");
    cluster.assert_clean();
}
