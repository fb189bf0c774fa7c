//! dgl-env --bind: from what host-probe finds of the processors to the processes themselves.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use support::{assert_has, scratch, sh, write};

/// Host records of this machine, as it is.
const PROBE: &str = "echo 127.0.0.1 | ipconf-check | host-probe --connect local --python none";

/// A host of two sockets with two cores each, two hyper-threads a core.
fn two_sockets(folder: &Path) {
    let host = json!({"type": "host", "id": 0, "of": 1, "ip": "127.0.0.1", "port": 30050,
        "cpus": 8, "numa_cores": [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]});
    write(folder, "hosts", format!("{host}\n"));
}

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

#[test]
fn servers_and_trainers_of_two_sockets() {
    let folder = scratch();
    two_sockets(&folder);
    let plan = |flags: &str| {
        let job = format!(
            "dgl-env --workspace /w --part-config g.json --num-trainers 2 {flags} -- x <hosts"
        );
        let ran = sh(&folder, &format!("unset OMP_NUM_THREADS; {job}"));
        ran.ends(0);
        let shown = |record: &Value| {
            let threads = record["env"]["OMP_NUM_THREADS"].as_str().unwrap();
            let (role, cpus) = (&record["role"], &record["cpus"]);
            format!(
                "{} {} {threads}",
                role.as_str().unwrap(),
                cpus.as_str().unwrap_or("-")
            )
        };
        let shown: Vec<String> = ran.records("process").iter().map(shown).collect();
        (shown.join("; "), ran.err)
    };
    let table = [
        ("", "server - 1; trainer - 2; trainer - 2"),
        (
            "--bind cores",
            "server 0,4 1; trainer 1,5 1; trainer 2-3,6-7 2",
        ),
        (
            "--bind numa",
            "server 0-1,4-5 1; trainer 0-1,4-5 2; trainer 2-3,6-7 2",
        ),
        (
            "--bind numa --num-samplers 1",
            "server 0-1,4-5 1; trainer 0-1,4-5 1; trainer 2-3,6-7 1",
        ),
        (
            "--bind cores --num-omp-threads 7",
            "server 0,4 1; trainer 1,5 7; trainer 2-3,6-7 7",
        ),
    ];
    for (flags, expected) in table {
        assert_eq!(plan(flags).0, expected, "{flags}");
    }
    let (_, message) = plan("--num-servers 3 --bind cores");
    assert_has(
        &message,
        "--bind cores: host 0 (127.0.0.1) has 5 servers and trainers on fewer cores",
    );
}

#[test]
fn what_cannot_be_bound_is_an_error() {
    let folder = scratch();
    two_sockets(&folder);
    sh(
        &folder,
        "jq -c 'del(.numa_cores)' hosts | dgl-env --workspace /w --part-config g.json \
         --num-trainers 2 --bind cores -- python3 x",
    )
    .gives(65, "")
    .err_has("host 0 (127.0.0.1): --bind: its CPU topology is unknown");
    let job = "dgl-env --role worker --workspace \"$PWD\" --bind cores -- true <hosts >job; \
        jq -c 'if .type == \"process\" then .cpus = $cpus else . end' --arg cpus";
    sh(&folder, &format!("{job} x job | dgl-spawn --connect local"))
        .ends(65)
        .err_has("\"x\" is not a list of processors");
    // a processor that the host does not have, or not for this job
    sh(
        &folder,
        &format!("{job} 1000 job | dgl-spawn --connect local --format jsonl"),
    )
    .ends(1)
    .out_has("host-agent: processors 1000: ");
}

#[test]
fn a_dry_run_shows_the_processors() {
    let folder = scratch();
    two_sockets(&folder);
    let job = "dgl-env --role worker --num-workers 2 --workspace /w --bind cores -- true <hosts | \
        dgl-spawn --dry-run";
    let ran = sh(&folder, job);
    ran.ends(0);
    for cpus in ["taskset -c 0-1,4-5 env", "taskset -c 2-3,6-7 env"] {
        ran.out_has(cpus);
    }
}
