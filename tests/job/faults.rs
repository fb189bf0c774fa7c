//! What is wrong with hosts is found before anything starts: all of it, on all of them, in one
//! report.

use support::{Cluster, PYTHON_WITH_STAND_IN, partition, read, scratch, sh, soon, write};

#[test]
fn a_second_address_of_a_card_on_real_hosts() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.102\n");
    cluster
        .sh(
            &folder,
            "ssh h2 'PATH=$PATH:/usr/sbin:/sbin; ip addr add 10.77.0.102/24 dev eth0'",
        )
        .ends(0);
    cluster.stand_in_for_dgl(2, "2.1.0");
    let probe = format!(
        "ipconf-check ip.txt | DGL_TOOLS_HOST_KEY=accept-new \
         host-probe --python {PYTHON_WITH_STAND_IN}"
    );
    let probed = cluster.sh(&folder, &probe);
    let message = "host 1 (10.77.0.102): 10.77.0.102 is not the first address of an interface \
        of the host (eth0 10.77.0.2); DGL would mistake the host for machine 0";
    probed.ends(74).err_has(message);
    assert!(
        probed
            .out
            .lines()
            .last()
            .is_some_and(|line| line.contains(r#""ok":false"#)),
        "{}",
        probed.out
    );
    cluster
        .sh(
            &folder,
            &format!("{probe} | dgl-env --role worker --workspace /srv -- touch ran | dgl-spawn"),
        )
        .ends(65)
        .err_has("dgl-env: stdin: the previous tool failed: host 1 failed");
    assert!(!cluster.lab.join("h1/srv/ran").exists());
}

#[test]
fn preflight_reports_all_faults_of_real_hosts() {
    let (folder, cluster) = Cluster::listed(4);
    partition(&folder, 4);
    let plan = "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job \
        --script-folder code | part-push |
                dgl-env --num-trainers 1 -- code/tool ran >job.jsonl";
    let tool = "printf '#!/bin/sh\\ntouch \"$1\"\\n' >code/tool && chmod +x code/tool";
    cluster.sh(&folder, &format!("{tool}; {plan}")).ends(0);

    // host 0 lacks the command, host 1 the whole workspace, host 2 the config and a free port, host
    // 3 has an ip_config of old
    let spoil =
        "rm /srv/job/code/tool; ssh h2 rm -r /srv/job; ssh h3 rm /srv/job/data/g.json; ssh h4 \
         'echo 10.77.0.9 >>/srv/job/ip_config.txt'
                 ssh h3 'cd /srv && { python3 -m http.server 30050 >/dev/null 2>&1 </dev/null & } \
                     && echo $!'";
    let spoilt = cluster.sh(&folder, spoil);
    let server = spoilt.out.trim().to_owned();
    assert!(
        server.parse::<u32>().is_ok(),
        "{}{}",
        spoilt.out,
        spoilt.err
    );
    soon("port 30050 of h3 is taken", || {
        cluster
            .sh(&folder, "ssh h3 grep -q :7562 /proc/net/tcp")
            .status
            == 0
    });

    let refused = cluster.sh(&folder, "dgl-spawn <job.jsonl >out.jsonl");
    refused.ends(74);
    for message in [
        "host 0 (10.77.0.1): no such command: code/tool".to_owned(),
        "host 1 (10.77.0.2): no such directory: /srv/job".to_owned(),
        "host 2 (10.77.0.3): no such file: /srv/job/data/g.json".to_owned(),
        format!("host 2 (10.77.0.3): port 30050 is taken by process {server} ("),
        "host 3 (10.77.0.4): the ip_config differs from the records".to_owned(),
        "nothing was started".to_owned(),
    ] {
        refused.err_has_times(&message, 1);
    }
    let last = read(&folder, "out.jsonl");
    assert!(
        last.lines()
            .last()
            .is_some_and(|line| line.contains(r#""cause":"preflight""#)),
        "{last}"
    );
    assert!(!last.contains(r#""type":"started""#), "{last}");
    let why = sh(&folder, "dgl-why out.jsonl");
    why.out_has("The job was not started: host 0 (10.77.0.1): no such command: code/tool")
        .out_has("more faults.\n");
    for k in 1..=4 {
        assert!(
            !cluster.lab.join(format!("h{k}/srv/job/ran")).exists(),
            "host {k}"
        );
    }
    cluster.sh(&folder, &format!("ssh h3 kill {server}"));
    cluster.assert_clean();
}
