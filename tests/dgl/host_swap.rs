//! A host that is lost: a spare takes its place, gets its partition, and the job goes on.

use serde_json::Value;
use support::{Cluster, assert_has, python_with_dgl, read, root, scratch, sh, write};

/// The last number of lines that begin so.
fn epochs(log: &str) -> Vec<u32> {
    log.lines()
        .filter_map(|line| {
            line.split_once("epoch ")?
                .1
                .split_once(" loss")?
                .0
                .parse()
                .ok()
        })
        .collect()
}

#[test]
fn real_dgl_goes_on_with_a_spare_when_a_host_loses_its_power() {
    let Some(python) = python_with_dgl() else {
        return;
    };
    let folder = scratch();
    sh(
        &folder,
        &format!("cp -r '{}/examples/dgl/.' .", root().display()),
    )
    .ends(0);
    write(&folder, "ip_config.txt", "10.77.0.1\n10.77.0.2\n");
    // the first spare has no power either
    write(&folder, "spares.txt", "10.77.0.3\n10.77.0.4\n");
    let cluster = Cluster::up(4);
    cluster.call(&["stop", "3"]);
    let begun = std::time::Instant::now();
    let (ran, gap) = std::thread::scope(|scope| {
        let training = scope.spawn(|| {
            let make = format!(
                "DGL_TOOLS_CONNECT_TIMEOUT=20s \
                 make -I '{}' train WORKSPACE=/srv/job PYTHON='{python}' RETRY=1 SPARES=spares.txt \
                 PROBE_FLAGS='--python \"{python}\"' \
                 SPAWN_FLAGS='--host-timeout 10s' \
                 TRAIN='$(PYTHON) code/train.py --ip-config ip_config.txt --part-config \
                     data/g.json --checkpoint checkpoint.pt --num-epochs 60' 2>&1",
                root().display()
            );
            cluster.sh(&folder, &make)
        });
        let log = folder.join(".dgl-run/logs/trainer-0.log");
        let trained = || epochs(&std::fs::read_to_string(&log).unwrap_or_default()).len() >= 3;
        while !trained() && !training.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let cut = begun.elapsed();
        cluster.call(&["stop", "2"]);
        let goes_on = || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            text.contains("goes on with epoch ") && epochs(&text).len() == 1
        };
        while !goes_on() && !training.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let gap = begun.elapsed() - cut;
        (training.join().unwrap(), gap)
    });
    let report = &ran.out;
    ran.ends(0);
    assert_has(report, "10.77.0.3 is passed over: ");
    assert_has(report, "10.77.0.4 replaces ");
    assert_has(report, "goes on with epoch ");
    assert_has(report, "loss fell from");
    // no epoch of those that were saved is trained again
    let all = epochs(report);
    let again: Vec<u32> = report
        .lines()
        .filter_map(|line| line.split_once("goes on with epoch ")?.1.parse().ok())
        .collect();
    assert!(again[0] >= 2 && all.iter().max() == Some(&59), "{again:?}");

    let pushed = read(&folder, ".dgl-run/pushed.jsonl");
    let records: Vec<Value> = pushed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = records
        .iter()
        .filter(|record| record["type"] == "file")
        .map(|record| record["kind"].as_str().unwrap())
        .collect();
    let sent = |host: u32| -> Vec<&str> {
        let here = records.iter().filter(|record| {
            record["type"] == "pushed" && record["host"] == host && record["skipped"] == false
        });
        here.map(|record| kinds[usize::try_from(record["file"].as_u64().unwrap()).unwrap()])
            .collect()
    };
    assert_eq!(sent(0), ["ip_config"], "the other host gets nothing else");
    assert!(sent(1).contains(&"partition"), "{:?}", sent(1));
    let bytes = |sent_only: bool| -> u64 {
        let all = records.iter().filter(|record| record["type"] == "pushed");
        all.filter(|record| !sent_only || record["skipped"] == false)
            .map(|record| record["bytes"].as_u64().unwrap())
            .sum()
    };
    println!(
        "{} of {} bytes sent again; {:.1} s from the power cut to the end of the next epoch",
        bytes(true),
        bytes(false),
        gap.as_secs_f64()
    );
    cluster.assert_clean();
}
