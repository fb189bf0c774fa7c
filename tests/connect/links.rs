//! How fast hosts reach each other: link-probe.

use serde_json::{Value, json};
use support::{Cluster, ip_config, scratch, sh};

/// Addresses of lo stand for hosts; what is measured is this machine.
fn hosts(count: usize) -> String {
    let host = |id| {
        let ip = format!("127.0.0.{}", id + 1);
        json!({"type": "host", "id": id, "of": count, "ip": ip, "port": 30050}).to_string() + "\n"
    };
    (0..count).map(host).collect()
}

fn links(out: &str) -> Vec<Value> {
    let records = out.lines().map(|line| serde_json::from_str(line).unwrap());
    records
        .filter(|record: &Value| record["type"] == "link")
        .collect()
}

#[test]
fn each_host_sends_to_half_of_the_others() {
    let folder = scratch();
    std::fs::write(folder.join("hosts"), hosts(4)).unwrap();
    let ran = sh(&folder, "link-probe --connect local --time 20ms <hosts");
    ran.ends(0);
    assert!(ran.out.starts_with(&hosts(4)), "{}", ran.out);
    let links = links(&ran.out);
    let ends: Vec<(u64, u64)> = links
        .iter()
        .map(|link| (link["from"].as_u64().unwrap(), link["to"].as_u64().unwrap()))
        .collect();
    let wanted = [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 0),
        (0, 2),
        (1, 3),
        (2, 0),
        (3, 1),
    ];
    assert_eq!(ends, wanted);
    for (id, link) in links.iter().enumerate() {
        assert!(
            link["id"] == id
                && link["of"] == 8
                && link["ok"] == true
                && link["rate_bytes_per_s"].as_u64().unwrap() > 0
                && link["round_trip_ms"].as_f64().unwrap() > 0.0
                && link["sent_bytes"].as_u64().unwrap() > 0
                && link["retransmits"].is_u64(),
            "{link}"
        );
    }
    let table = sh(
        &folder,
        "link-probe --connect local --time 20ms --rounds 1 --format human <hosts",
    );
    let lines: Vec<&str> = table.out.lines().collect();
    assert!(
        lines.len() == 5 && lines[0].contains("round trip") && lines[4].contains("127.0.0.4"),
        "{}",
        table.out
    );
    std::fs::write(folder.join("hosts"), hosts(1)).unwrap();
    let alone = sh(&folder, "link-probe --connect local <hosts");
    assert!(alone.status == 0 && alone.out == hosts(1), "{}", alone.out);
}

#[test]
fn a_host_that_cannot_be_measured_ends_the_pipeline() {
    let folder = scratch();
    // nobody has an address of this network
    let hosts = hosts(2).replace("127.0.0.2", "192.0.2.1");
    std::fs::write(folder.join("hosts"), hosts).unwrap();
    let ran = sh(
        &folder,
        "link-probe --connect local --time 20ms <hosts >links; echo $?; \
         part-map --workspace /w <links",
    );
    assert!(
        ran.status == 65
            && ran.out == "74\n"
            && ran
                .err
                .contains("link-probe: host 0 (127.0.0.1) to host 1 (192.0.2.1): ")
            && ran.err.contains("the stage before this one failed: link 0"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn real_hosts_with_a_slow_one_are_told_apart() {
    let folder = scratch();
    let cluster = Cluster::up(4);
    ip_config(&folder, 4);
    let shaped = cluster.call(&[
        "exec",
        "3",
        "ssh",
        "h3",
        "PATH=$PATH:/usr/sbin:/sbin; tc qdisc add dev eth0 root tbf rate 20mbit burst 64kb \
         latency 50ms",
    ]);
    shaped.ends(0);
    let ran = cluster.sh(&folder, "ipconf-check ip.txt | link-probe --time 500ms");
    ran.ends(0)
        .err_has("link-probe: warning: host 2 (10.77.0.3): it sends ");
    let fastest = links(&ran.out)
        .iter()
        .filter(|link| link["from"] == 2)
        .map(|link| link["rate_bytes_per_s"].as_u64().unwrap())
        .max();
    // what was shaped to 20 Mbit/s is not taken for much more, however busy this machine is
    assert!(fastest.unwrap() < 5_000_000, "{}", ran.out);
    cluster.assert_clean();
}
