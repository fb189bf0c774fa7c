//! part-fit: what its records say of partitions that DGL itself wrote, and that real hosts have
//! what it asks for.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::{Cluster, Ran, python_with_dgl, read, root, scratch, sh, takes_seconds, write};

const CONFIG: &str = "tests/fixtures/dgl-1.0.4-homo/g.json";

/// Records of two hosts with much memory in `hosts`.
fn roomy() -> std::path::PathBuf {
    let folder = scratch();
    let host = |id: usize| {
        let host = json!({"type": "host", "id": id, "of": 2, "port": 30050,
            "ip": format!("10.77.0.{}", id + 1), "dgl": "1.0.4", "gpus": 4,
            "mem_bytes": 64_000_000_000_u64, "shm_free_bytes": 32_000_000_000_u64});
        format!("{host}\n")
    };
    write(&folder, "hosts", [0, 1].map(host).concat());
    folder
}

fn fit(folder: &Path, flags: &str) -> Ran {
    let config = root().join(CONFIG);
    sh(
        folder,
        &format!(
            "part-fit --part-config '{}' {flags} <hosts",
            config.display()
        ),
    )
}

fn fits(out: &str) -> Vec<Value> {
    let records = out.lines().map(|line| serde_json::from_str(line).unwrap());
    records
        .filter(|record: &Value| record["type"] == "fit")
        .collect()
}

fn number(record: &Value, field: &str) -> u64 {
    record[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} of {record}"))
}

#[test]
fn a_record_says_what_a_partition_has_and_needs() {
    let folder = roomy();
    let ran = fit(&folder, "");
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    let came_in = read(&folder, "hosts");
    ran.out_begins(&came_in);
    let records = fits(&ran.out);
    let part = |id: usize| root().join(format!("tests/fixtures/dgl-1.0.4-homo/part{id}"));
    for (id, record) in records.iter().enumerate() {
        assert!(
            record["id"] == id && record["of"] == 2 && record["host"] == id,
            "{record}"
        );
        assert_eq!(record["fits"], true);
        let files = fs::read_dir(part(id)).unwrap();
        let bytes: u64 = files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert_eq!(number(record, "disk_bytes"), bytes);
    }
    let first = &records[0];
    assert_eq!(number(first, "nodes"), 61);
    assert_eq!(number(first, "edges") + number(&records[1], "edges"), 400);
    assert_eq!(first["node_skew"], 1.017);
    assert_eq!(number(first, "shm_bytes"), number(first, "disk_bytes"));
}

/// Partitions of all versions, by the records of part-map; .npy maps among them.
#[test]
fn partitions_of_each_version_in_the_pipeline() {
    if takes_seconds() {
        return;
    }
    let folder = roomy();
    for entry in fs::read_dir(root().join("tests/fixtures")).unwrap() {
        let fixture = entry.unwrap().path();
        let name = fixture.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.starts_with("dgl-") {
            continue;
        }
        let copy = format!(
            "rm -rf g; cp -r '{0}' g; jq -c 'del(.dgl)' hosts >h && mv h hosts; \
             sed -i \"s|@HERE@|$PWD/g|\" g/*.json; config=$(echo g/*.json); \
             part-map --part-config $config --workspace /srv/job <hosts >plan && \
             part-fit <plan >out && head -c \"$(wc -c <plan)\" out | cmp - plan && \
             part-fit --part-config $config <hosts | grep '\"fit\"' >alone && \
             grep '\"fit\"' out | cmp - alone && cat alone",
            fixture.display()
        );
        let ran = sh(&folder, &copy);
        assert_eq!(ran.status, 0, "{name}: {}", ran.err);
        let records = fits(&ran.out);
        let total: u64 = records.iter().map(|record| number(record, "nodes")).sum();
        assert!([100, 120].contains(&total), "{name}: {total}");
    }
}

/// A tenth of a host's memory must stay free. Of a server, the most memory is compared with what
/// part-fit says of it, on what the process takes by itself.
#[test]
fn real_dgl_is_refused_where_it_does_not_fit_and_runs_where_it_just_does() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let (folder, cluster) = Cluster::listed(2);
    let prepare = format!(
        "cp -rL '{}/tests/dgl' code; DGLBACKEND=pytorch '{python}' code/partition.py --out out \
         --num-parts 2 --num-nodes 100000 && DGLBACKEND=pytorch '{python}' -c 'import dgl, torch; \
         print(open(\"/proc/self/status\").read())' | \
         awk '/^VmHWM/ {{ print $2 * 1024 }}' >process",
        root().display()
    );
    sh(&folder, &prepare).ends(0);
    let plan = "fit() { part-fit --mem process=$(cat process),trainer=300M \
        \"$@\"; }; \
        ipconf-check ip.txt | host-probe --workspace /srv/job | part-map --part-config out/g.json \
        --workspace /srv/job --script-folder code >plan && fit --warn-only <plan >fits && \
        jq 'select(.type == \"fit\") | [.load_bytes, .run_bytes] | max' fits | sort -n | tail -n 1 \
        >needed && small() { jq -c --argjson b \"$1\" 'if .type == \"host\" then .mem_bytes = $b \
        else . end' plan; };";
    cluster
        .sh(
            &folder,
            &format!(
                "{plan} small $(cat needed) | fit | part-push; status=$?; ls -d /srv/job; \
                  exit $status"
            ),
        )
        .gives(65, "")
        .err_has("does not fit");
    let train = format!(
        "{plan} small $(($(cat needed) * 10 / 9 + 100)) | fit | part-push | \
         dgl-env --num-trainers 1 -- '{python}' \
         code/train.py --ip-config ip_config.txt --part-config data/g.json --num-epochs 1 \
         --batch-size 1000 | dgl-spawn --format jsonl >run"
    );
    cluster.sh(&folder, &train).ends(0);
    cluster.assert_clean();
    let run = read(&folder, "run");
    for record in run
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
    {
        if record["type"] == "exited" && record["role"] == "server" {
            let of_host = |one: &&Value| one["host"] == record["host"];
            let records = fits(&run);
            let message = number(records.iter().find(of_host).unwrap(), "server_bytes") as f64;
            let is = number(&record, "max_rss_bytes") as f64;
            assert!(
                (0.95..1.10).contains(&(message / is)),
                "{message} was said, {is} it took"
            );
        }
    }
}
