//! Real DGL on real hosts: a job trained to its end, the copied config loaded by DGL itself.

use std::path::Path;
use support::{Cluster, ip_config, python_with_dgl, root, scratch, sh};

#[test]
fn real_dgl_trains_to_its_end() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    let cluster = Cluster::up(4);
    ip_config(&folder, 4);
    let scripts = root().join("tests/dgl");
    sh(
        &folder,
        &format!(
            "DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts 4",
            scripts.display()
        ),
    )
    .ends(0);

    // DGL itself loads the copied config, by each of the three ways to name its files
    for (paths, config) in [
        ("workspace", "g.json"),
        ("absolute", "data/g.json"),
        ("config", "data/g.json"),
    ] {
        let copy = format!(
            "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job --paths \
             {paths} --script-folder '{}' | part-push >pushed.jsonl",
            scripts.display()
        );
        let pushed = cluster.sh(&folder, &copy);
        pushed.ends(0);
        let load = format!(
            "<pushed.jsonl dgl-env --role worker 'exec \"{python}\" dgl/load.py {config} 4 $RANK' \
             | dgl-spawn --format human"
        );
        let loaded = cluster.sh(&folder, &load);
        assert_eq!(loaded.status, 0, "{paths}: {}{}", loaded.out, loaded.err);
        assert_eq!(
            loaded.out.matches("loaded part").count(),
            4,
            "{}",
            loaded.out
        );
    }
    // by the interpreter's path, and by that of its environment
    let prefix = Path::new(&python).ancestors().nth(2).unwrap();
    let kind = if prefix.join("conda-meta").exists() {
        "conda"
    } else {
        "venv"
    };
    let environment = format!("--{kind} '{}'", prefix.display());
    let torchrun = "torchrun --launcher-arg=--redirects=1 --launcher-arg=--tee=1";
    for (launcher, probed, python) in [
        ("direct", format!("--python '{python}'"), python.as_str()),
        (torchrun, environment, "python3"),
    ] {
        let train = format!(
            "<pushed.jsonl host-probe --workspace /srv/job {probed} | dgl-env --num-trainers 2 \
             --num-servers 2 --num-samplers 1 \
             --num-omp-threads 1 --launcher {launcher} -- '{python}' dgl/train.py --ip-config \
             ip_config.txt --part-config data/g.json --num-epochs 3 | \
             dgl-spawn --format human --log-dir logs"
        );
        let trained = cluster.sh(&folder, &train);
        assert_eq!(
            trained.status, 0,
            "{launcher}: {}{}",
            trained.out, trained.err
        );
        trained.out_has("loss fell from");
        cluster.assert_clean();
    }
}
