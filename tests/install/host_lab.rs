//! Hosts to rehearse on: host-lab as people use it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::{
    Cluster, Ran, executable, only_root_can, ran, read, root, scratch, sh, tools, write,
};

/// Beside two others, what a test waits for comes too late.
#[test]
fn real_hosts_of_two_tests_at_a_time() {
    let up = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let up = &up;
            scope.spawn(move || {
                let _cluster = Cluster::up(1);
                let others = up.fetch_add(1, Ordering::SeqCst);
                assert!(others < 2, "three clusters at once");
                std::thread::sleep(Duration::from_millis(500));
                up.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
}

/// A shell's call of a host-lab that knows nothing of the tools.
fn call(script: &Path, cluster: &Cluster, folder: &Path, args: &[&str]) -> Ran {
    let target = tools().parent().unwrap().to_owned();
    let mut call = Command::new(script);
    call.args(args)
        .current_dir(folder)
        .env("LAB", &cluster.lab)
        .env("PATH", "/usr/bin:/bin")
        .env("CARGO_TARGET_DIR", target);
    ran(call.output().unwrap())
}

#[test]
fn real_hosts_say_what_to_do_with_them() {
    let cluster = Cluster::up(2);
    let script = root().join("tools/host-lab/host-lab");
    let target = tools().parent().unwrap().to_owned();
    let call = |args: &[&str]| call(&script, &cluster, &root(), args);
    call(&["down"]).ends(0);
    let up = call(&["up", "2", "--shm=16m", "--disk", "32m"]);
    up.gives(0, "10.77.0.1\n10.77.0.2\n");
    for part in [
        "2 hosts are up: h1 to h2, 10.77.0.1 to 10.77.0.2",
        "host-lab exec 1 bash",
        "with the tools of",
        "host-lab down",
    ] {
        up.err_has(part);
    }
    assert_eq!(call(&["list"]).out, up.out);
    let sizes = call(&[
        "exec",
        "h2",
        "df",
        "-k",
        "--output=size",
        "/dev/shm",
        "/srv",
    ]);
    let sizes: Vec<&str> = sizes.out.split_whitespace().skip(1).collect();
    assert_eq!(sizes, ["16384", "32768"]);
    for tool in ["dgl-spawn", "dgl-launch", "gs-copy", "host-lab"] {
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
    // tools that are called by their directory stay those
    let path = format!("PATH={}:/usr/bin:/bin", tools().display());
    let chosen = cluster.call(&[
        "exec",
        "1",
        "env",
        &path,
        "sh",
        "-c",
        "command -v dgl-spawn",
    ]);
    assert_eq!(
        chosen.out.trim(),
        tools().join("dgl-spawn").to_str().unwrap()
    );
}

/// A job's python3 on the launching machine is the one that a login finds, as on the other hosts;
/// and who runs a tool outside the hosts is told where it belongs.
#[test]
fn real_hosts_are_alike_inside_and_out_of_reach_outside() {
    let cluster = Cluster::up(2);
    let script = root().join("tools/host-lab/host-lab");
    let folder = scratch();
    executable(&folder, "python3", "#!/bin/sh\nexit 9\n");
    let mut exec = Command::new(&script);
    let own_first = format!("{}:/usr/bin:/bin", folder.display());
    exec.env("LAB", &cluster.lab).env("PATH", own_first);
    exec.args([
        "exec",
        "1",
        "sh",
        "-c",
        "command -v python3; ssh h2 command -v python3",
    ]);
    let pythons = ran(exec.output().unwrap());
    let (here, there) = pythons.out.split_once('\n').unwrap();
    assert_eq!(here, there.trim(), "{}", pythons.err);

    // from outside, the hosts are not reached
    let outside = "printf '10.77.0.1\n' | ipconf-check - | host-probe";
    for connect in ["ssh2", "ssh"] {
        let probe =
            format!("export DGL_TOOLS_CONNECT={connect} DGL_TOOLS_CONNECT_TIMEOUT=2s; {outside}");
        sh(&folder, &probe).ends(74);
    }
    cluster.call(&["down"]).ends(0);
    assert!(!cluster.lab.exists(), "keys and logs are gone too");
}

/// A terminal whose first process is exec, as of `xterm -e`, and one with a shell on the host.
#[test]
fn real_hosts_keep_nothing_that_ran_over_a_terminal_which_is_closed() {
    let cluster = Cluster::up(1);
    let folder = scratch();
    let script = root().join("tools/host-lab/host-lab");
    let closes = "import os, pty, sys, time\n\
        pid, terminal = pty.fork()\n\
        if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
        os.write(terminal, b'echo begun; sleep 1001 | sleep 1001\\n')\n\
        seen = b''\n\
        while b'begun\\r\\n' not in seen: seen += os.read(terminal, 4096)\n\
        time.sleep(0.5)\n\
        os.close(terminal)\n\
        os.waitpid(pid, 0)\n";
    for command in [
        "sh -c 'echo begun; sleep 1001 | sleep 1001; true'",
        "bash --norc",
        "sh",
    ] {
        let run = format!(
            "export LAB='{}'; python3 -c \"$CLOSES\" '{}' exec 1 {command}",
            cluster.lab.display(),
            script.display()
        );
        sh(
            &folder,
            &format!("CLOSES=$(cat <<'END'\n{closes}END\n); {run}"),
        )
        .ends(0);
        cluster.assert_clean();
    }
}

#[test]
fn real_hosts_whose_folder_has_a_blank_in_its_name() {
    let cluster = Cluster::up(1);
    cluster
        .call(&["exec", "1", "ssh", "-o", "BatchMode=yes", "h1", "hostname"])
        .gives(0, "h1\n");
    cluster.assert_clean();
    // what it says may be pasted, also where LAB is not set then
    cluster.call(&["down"]).ends(0);
    let up = cluster.call(&["up", "1"]);
    let shows_list = |line: &&str| line.contains(" list >ip_config.txt ");
    let line = up.err.lines().find(shows_list).unwrap().trim_start();
    let folder = scratch();
    sh(&folder, line.split("    ").next().unwrap()).ends(0);
    let list = read(&folder, "ip_config.txt");
    assert_eq!(list, "10.77.0.1\n");
}

#[test]
fn real_hosts_go_by_number_name_and_address() {
    let cluster = Cluster::up(2);
    for name in ["2", "h2", "10.77.0.2"] {
        assert_eq!(
            cluster.call(&["exec", name, "hostname"]).out,
            "h2\n",
            "{name}"
        );
    }
    cluster.call(&["stop", "10.77.0.2"]).ends(0);
    let table = [
        (
            &["exec", "h2", "true"][..],
            "host 2 is stopped\n  fix: switch it on",
        ),
        (&["cut", "2"], "host 2 is stopped"),
        (&["start", "1"], "host 1 is up already"),
        (
            &["exec", "h3", "true"],
            "there is no host 'h3'\n  fix: give one of these: 1 2",
        ),
        (&["stop"], "there is no host ''"),
        (&["exec", "1"], "COMMAND: is missing"),
        (&["up", "2"], "hosts are up already"),
    ];
    for (args, problem) in table {
        cluster.call(args).ends(2).err_has(problem);
    }
    cluster.call(&["start", "h2"]).ends(0);
    let there = |host: &str| cluster.call(&["exec", "1", "ssh", host, "hostname"]).out;
    assert_eq!(there("h2"), "h2\n");
    cluster.call(&["cut", "h2"]).ends(0);
    let cable = "cat /sys/class/net/eth0/carrier";
    let carrier = || cluster.on(2, cable).out;
    assert_eq!(carrier(), "0\n");
    cluster.call(&["mend", "h2"]).ends(0);
    assert_eq!(carrier(), "1\n");
}

/// The recipe of dgl-tools(7), with an installed host-lab and nothing else.
#[test]
fn real_hosts_of_an_installed_host_lab() {
    let folder = scratch();
    let make = format!(
        "make -C '{}' install BUILT='{}' PREFIX=\"$PWD/prefix\" && mkdir code && \
         echo 'echo run on $(hostname)' >code/run.sh",
        root().display(),
        tools().display()
    );
    sh(&folder, &make).ends(0);
    let cluster = Cluster::up(1);
    let script = folder.join("prefix/bin/host-lab");
    let call = |args: &[&str]| call(&script, &cluster, &folder, args);
    call(&["down"]).gives(0, "");
    call(&["down"]).ends(0).err_has("there is no lab in ");
    let up = call(&["up", "2", "--quiet"]);
    assert_eq!((up.status, up.err.as_str()), (0, ""));
    write(&folder, "ip_config.txt", up.out);
    let job = "ipconf-check ip_config.txt | host-probe |
        part-map --workspace /srv/job --script-folder code | part-push |
        dgl-env --role worker -- sh code/run.sh | dgl-spawn --format human";
    let ran = call(&["exec", "1", "sh", "-c", job]);
    ran.ends(0);
    for line in ["worker 0] run on h1\n", "worker 1] run on h2\n"] {
        ran.out_has(line);
    }
    // a host sees the files of all, but not their processes
    for command in ["left", "down", "up"] {
        call(&["exec", "1", script.to_str().unwrap(), command])
            .ends(2)
            .err_has("host-lab: this shell is on a host of host-lab");
    }
    cluster.assert_clean();
    call(&["--version"]).out_begins("dgl-spawn ");
}

/// Each line is refused with that status and problem, and a fix; its state would be in `lab`.
fn refused(folder: &Path, table: &[(&str, i32, &str)]) {
    let (lab, script) = (folder.join("lab"), root().join("tools/host-lab/host-lab"));
    let begin = format!("export LAB='{}'; H='{}'; ", lab.display(), script.display());
    for (line, status, problem) in table {
        let got = sh(folder, &format!("{begin}{line}"));
        let report = got.err.contains(problem) && got.err.contains("\n  fix: ");
        assert!(
            got.status == *status && report && got.out.is_empty(),
            "{line}: {} {}",
            got.status,
            got.err
        );
    }
}

#[test]
fn a_folder_that_another_user_has_put_there_is_refused() {
    let folder = scratch();
    let made = "mkdir -p own other victim/srv && touch own/.cluster other/.cluster victim/srv/kept \
        && ln -s own lab && ln -s ../victim own/h1 && ln -s ../victim other/h1";
    sh(&folder, made).ends(0);
    refused(
        &folder,
        &[
            ("host-lab up 1", 2, "is a link"),
            ("host-lab down", 2, "is a link"),
            ("LAB=$LAB/ host-lab list", 2, "is a link"),
        ],
    );
    // only root can give a directory away; others try one of root's
    let other = match sh(&folder, "id -u").out.as_str() {
        "0\n" => "chown 65534 other; LAB=$PWD/other",
        _ => "LAB=/usr",
    };
    for command in ["up 1", "down", "list"] {
        let line = format!("{other} host-lab {command}");
        refused(&folder, &[(&line, 2, "belongs to another user")]);
    }
    assert!(folder.join("victim/srv/kept").exists());
}

/// Another user may have put a directory in the place of the state after it was checked.
#[test]
fn a_switch_of_another_user_is_none_of_ours() {
    if only_root_can("start a process of another user") {
        return;
    }
    let folder = scratch();
    let script = root().join("tools/host-lab/host-lab");
    let looks = |user: &str| {
        let script = format!(
            "export LAB=$PWD/lab; mkdir -p lab/h1
             {user} sh -c 'while :; do sleep 0.2; done' switch \"$LAB\" >/dev/null 2>&1 &
             echo $! >lab/pid
             until tr '\\0' ' ' </proc/$!/cmdline | grep -q 'done switch'; do sleep 0.1; done
             '{}' list; status=$?; kill $!; exit $status",
            script.display()
        );
        sh(&folder, &script)
    };
    looks("env").gives(0, "10.77.0.1\n");
    let other = looks("setpriv --reuid 65534 --regid 65534 --clear-groups");
    assert_ne!(other.status, 0);
    other.err_has("no hosts are up");
}
