//! Hosts to rehearse on: tests/cluster/cluster.sh as people use it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::{Cluster, Ran, ran, root, tools};

/// Beside another, what a test waits for comes too late.
#[test]
fn real_hosts_of_one_test_at_a_time() {
    let up = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for name in ["turn-1", "turn-2"] {
            let up = &up;
            scope.spawn(move || {
                let _cluster = Cluster::up(name, 1);
                assert_eq!(up.fetch_add(1, Ordering::SeqCst), 0, "two clusters at once");
                std::thread::sleep(Duration::from_millis(500));
                up.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
}

#[test]
fn real_hosts_say_what_to_do_with_them() {
    let cluster = Cluster::up("said", 2);
    let script = root().join("tests/cluster/cluster.sh");
    let target = tools().parent().unwrap().to_owned();
    // as a shell would call it that knows nothing of the tools
    let call = |args: &[&str]| -> Ran {
        let mut call = Command::new(&script);
        call.args(args)
            .env("LAB", &cluster.0)
            .env("PATH", "/usr/bin:/bin")
            .env("CARGO_TARGET_DIR", &target);
        ran(call.output().unwrap())
    };
    assert_eq!(call(&["down"]).status, 0);
    let up = call(&["up", "2"]);
    assert_eq!(up.status, 0, "{}", up.err);
    for part in [
        "2 hosts are up: h1 to h2, 10.77.0.1 to 10.77.0.2",
        "cluster.sh exec 1 bash",
        "with the tools of",
        "cluster.sh down",
    ] {
        assert!(up.out.contains(part), "{part}: {}", up.out);
    }
    for tool in ["dgl-spawn", "dgl-launch"] {
        let found = call(&["exec", "2", "sh", "-c", &format!("command -v {tool}")]);
        let built = found.out.starts_with(target.to_str().unwrap())
            || found.out.starts_with(root().to_str().unwrap());
        assert!(
            found.status == 0 && built,
            "{tool}: {}{}",
            found.out,
            found.err
        );
    }
    // tools that are called by their folder stay those
    let path = format!("{}:/usr/bin:/bin", tools().display());
    let chosen = cluster.call(&[
        "exec",
        "1",
        "env",
        &format!("PATH={path}"),
        "sh",
        "-c",
        "command -v dgl-spawn",
    ]);
    assert_eq!(
        chosen.out.trim(),
        tools().join("dgl-spawn").to_str().unwrap()
    );
}
