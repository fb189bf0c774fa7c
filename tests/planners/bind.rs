//! dgl-env --bind: from what host-probe finds of the processors to the processes themselves.

use serde_json::json;
use std::collections::BTreeMap;
use support::{scratch, sh};

/// Host records of this machine, as it is.
const PROBE: &str = "echo 127.0.0.1 | ipconf-check | host-probe --connect local --python none";

#[test]
fn host_probe_tells_the_processors_that_may_be_used() {
    let folder = scratch();
    let ran = sh(&folder, PROBE);
    let host = &ran.records("host")[0];
    let all: Vec<u64> = serde_json::from_value::<Vec<Vec<Vec<u64>>>>(host["numa_cores"].clone())
        .unwrap()
        .concat()
        .concat();
    assert_eq!(host["cpus"], all.len(), "{host}");
    let last = all.iter().max().unwrap();
    let one = sh(
        &folder,
        &PROBE.replace("host-probe", &format!("taskset -c {last} host-probe")),
    );
    let host = &one.records("host")[0];
    assert_eq!(
        (&host["cpus"], &host["numa_cores"]),
        (&json!(1), &json!([[[last]]])),
        "{}",
        one.err
    );
}

#[test]
fn each_process_runs_where_its_record_says_and_what_it_starts_too() {
    let folder = scratch();
    for how in ["cores", "numa"] {
        let job = format!(
            "{PROBE} | dgl-env --role worker --num-workers 2 --bind {how} --workspace \"$PWD\" -- \
             sh -c 'grep -h Cpus_allowed_list /proc/$$/status /proc/self/status' >job && \
             dgl-spawn --connect local --format jsonl <job"
        );
        let ran = sh(&folder, &job);
        ran.ends(0);
        let message: BTreeMap<u64, String> = ran
            .records("process")
            .iter()
            .map(|record| (record["id"].as_u64().unwrap(), record["cpus"].to_string()))
            .collect();
        let output = ran.records("output");
        assert_eq!(output.len(), 4, "{}", ran.out);
        for line in output {
            let id = line["id"].as_u64().unwrap();
            let is = line["line"].as_str().unwrap().rsplit('\t').next().unwrap();
            assert_eq!(message[&id], format!("{is:?}"), "{line}");
        }
    }
}
