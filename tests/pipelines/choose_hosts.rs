//! Which hosts of a longer list are taken: `host-probe --need`, `--min`.

use serde_json::json;
use std::path::Path;
use support::{Cluster, PYTHON_WITH_STAND_IN, executable, partition, read, scratch, soon, write};

/// Hosts of this machine by the addresses of lo, of which DGL finds the first alone.
fn hosts(folder: &Path, file: &str, addresses: &[&str], port: u16) {
    let of = addresses.len();
    let host = |(id, ip): (usize, &&str)| {
        json!({"type": "host", "id": id, "of": of, "ip": ip, "port": port, "own": 1.5}).to_string()
    };
    let records: Vec<String> = addresses.iter().enumerate().map(host).collect();
    write(folder, file, records.join("\n") + "\n");
}

/// In place of nvidia-smi on a host with two cards; the process that uses the second is this test.
fn nvidia_smi(free_mib: u32) -> String {
    let user = std::process::id();
    format!(
        "#!/bin/sh
case $1 in
    --query-gpu=*) echo '0, GPU-a, 81920, 81000'; echo '1, GPU-b, 81920, {free_mib}' ;;
    --query-compute-apps=*) echo '{user}, GPU-b, 39936' ;;
    -L) echo 'GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)'
        echo 'GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b)' ;;
esac
"
    )
}

#[test]
fn of_real_hosts_those_are_taken_that_are_up_and_free() {
    let (folder, cluster) = Cluster::listed(5);
    partition(&folder, 2);
    cluster.call(&["stop", "2"]);
    let job = "DGL_TOOLS_TOKEN=0123456789abcdef0123456789abcdef DGL_TOOLS_JOB=other \
        setsid sleep 600 >/dev/null 2>&1 </dev/null &";
    cluster.on(3, job);
    let listen = "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', 30051)); \
        s.listen(); time.sleep(600)";
    let script = format!("setsid python3 -c \"{listen}\" >/dev/null 2>&1 </dev/null &");
    cluster.on(4, &script);
    soon("host 4 listens", || {
        let is_listening = ["exec", "4", "grep", "-q", ":7563 ", "/proc/net/tcp"];
        cluster.call(&is_listening).status == 0
    });
    let ran = cluster.sh(
        &folder,
        "export DGL_TOOLS_CONNECT_TIMEOUT=20s
         ipconf-check --num-servers 2 ip.txt |
         host-probe --need 2 --num-servers 2 --port auto --python none 2>said | part-map \
             --part-config out/g.json --workspace /srv/job | part-push --format jsonl | \
         dgl-env --role worker -- \
             sh -c 'tail -n 1 data/part$RANK/graph.dgl; echo; cat ip_config.txt' |
         dgl-spawn --format human",
    );
    let message = read(&folder, "said");
    ran.ends(0);
    for words in [
        "host 1 (10.77.0.2) is skipped: ",
        "host 2 (10.77.0.3) is skipped: another job is running: other",
        "suitable, but not needed: 10.77.0.5",
    ] {
        assert!(message.contains(words), "{message}");
    }
    for line in [
        "[10.77.0.1 worker 0] graph of part 0",
        "[10.77.0.4 worker 1] graph of part 1",
        "[10.77.0.4 worker 1] 10.77.0.1 30052",
        "[10.77.0.1 worker 0] 10.77.0.4 30052",
    ] {
        ran.out_has(line);
    }
    ran.out_lacks("10.77.0.5");
}

/// By --connect local on one host, where no job of another test is.
#[test]
fn on_one_of_real_hosts_it_is_told_what_each_lacks() {
    let folder = scratch();
    let cluster = Cluster::up(1);
    cluster.stand_in_for_dgl(1, "2.1.0"); // which would take such a host for machine 0
    let on_host = |script: &str| cluster.sh(&folder, script);
    let host_probe = format!("host-probe --connect local --python {PYTHON_WITH_STAND_IN}");
    let probe = |options: &str| on_host(&format!("{host_probe} {options}"));
    hosts(
        &folder,
        "hosts",
        &["127.0.0.9", "127.0.0.1", "127.0.0.8"],
        30950,
    );

    let ran = probe("--need 1 <hosts");
    ran.ends(0);
    let [host] = &ran.records("host")[..] else {
        panic!("{}", ran.out)
    };
    for (name, value) in [
        ("id", json!(0)),
        ("of", json!(1)),
        ("ip", json!("127.0.0.1")),
        ("port", json!(30950)),
        ("own", json!(1.5)),
        ("iface", json!("lo")),
    ] {
        assert_eq!(host[name], value, "{name} of {host}");
    }
    for words in [
        "host-probe: host 0 (127.0.0.9) is skipped: 127.0.0.9 is not the first address",
        "host-probe: host 2 (127.0.0.8) is skipped: 127.0.0.8 is not the first address",
    ] {
        ran.err_has(words);
    }
    let table = probe("--need 1 --format human <hosts");
    table.out_has("\n   0  127.0.0.1 ");
    assert!(table.out.lines().count() == 2, "{}", table.out);

    // too few of them end the pipeline
    probe("--need 2 <hosts | part-map --workspace /w")
        .ends(65)
        .err_has("host-probe: --need: 1 of 3 hosts are suitable, and 2 are needed")
        .err_has("the previous tool failed");
    for (option, least) in [
        ("", "is skipped"),
        ("--min memory=900T", "of main memory, less than 900 TB"),
        ("--min shm=900T", "free in /dev/shm, less than 900 TB"),
        (
            "--workspace / --min disk=900T",
            "free in the workspace, less than 900 TB",
        ),
    ] {
        probe(&format!("--need 2 {option} <hosts"))
            .ends(74)
            .err_has(least);
    }

    for (free_mib, status, problem) in [
        (41_000, 74, "43 GB are free on GPU 1, less than 50 GB"),
        (80_000, 0, ""),
    ] {
        executable(&folder, "bin/nvidia-smi", &nvidia_smi(free_mib));
        let script = format!("PATH=$PWD/bin:$PATH {host_probe} --need 1 --min gpu=50G <hosts");
        on_host(&script).ends(status).err_has(problem);
    }

    // a port that is in use counts where it is kept
    let listen = "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 30951)); \
        s.listen(); time.sleep(600)";
    let script = format!("setsid python3 -c \"{listen}\" >/dev/null 2>&1 </dev/null &");
    cluster.on(1, &script);
    soon("it listens", || {
        let is_listening = ["exec", "1", "grep", "-q", ":78E7 ", "/proc/net/tcp"];
        cluster.call(&is_listening).status == 0
    });
    probe("--need 1 --num-servers 2 --port keep <hosts")
        .ends(74)
        .err_has("is skipped: port 30951 is in use");
    probe("--need 1 --num-servers 2 --port auto <hosts").ends(0);
}
