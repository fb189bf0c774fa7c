//! part-push: odd names and hosts; ../cases/slow_part_push.txt has sizes, times and modes.

use crate::lab::tree;
use crate::local::{assert_arrived, busybox, map, ours, plan, push, pushed};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use support::{Cluster, executable, make_folder, noise, only_root_can, scratch, sh, write};

#[test]
fn slow_odd_names_arrive_as_they_are_and_are_never_run() {
    let long = "l".repeat(240);
    let names: Vec<OsString> = [
        "two  words",
        "it's",
        "\"q\"",
        "new\nline",
        "ends\n",
        "-rf",
        "--",
        "$(touch pwned)",
        "`touch pwned`",
        "a;b",
        "*",
        "back\\slash",
        "~",
        "ä",
        &long,
    ]
    .into_iter()
    .map(OsString::from)
    .chain([OsString::from_vec(b"\xff\x81\x88\xfe".to_vec())])
    .collect();
    for host in ["", "busybox", "bare"] {
        let folder = plan(&[]);
        for (at, name) in names.iter().enumerate() {
            let below = folder.join("src").join(&names[(at + 1) % names.len()]);
            fs::create_dir_all(&below).unwrap();
            write(&below, name, noise(at as u64, 100 + at));
        }
        map(&folder);
        let connect = match host {
            "busybox" => busybox(&folder, &[]),
            // all that a host must have
            "bare" => {
                sh(
                    &folder,
                    "mkdir bin; for tool in sh cat chmod env head ls mkdir mv rm uname; do ln -s \
                     \"$(command -v busybox)\" bin/$tool || exit; done",
                )
                .ends(0);
                format!("--connect 'env PATH={}/bin'", folder.display())
            }
            _ => String::new(),
        };
        push(&folder, &connect).ends(0);
        assert_arrived(&folder);
        assert!(!folder.join("pwned").exists() && !folder.join("ws/pwned").exists());
        assert_eq!(
            fs::read_dir(folder.join("ws")).unwrap().count(),
            2,
            "nothing of ours stays"
        );
        for again in ["", "--verify"] {
            let again = push(&folder, &format!("{again} {connect}"));
            let records = pushed(&again.out);
            assert!(
                again.status == 0 && records.iter().all(|(ok, sent, _)| *ok && *sent == 0),
                "{host}: {}{}",
                again.out,
                again.err
            );
        }
    }
}

#[test]
fn new_directories_have_what_the_umask_of_the_login_allows() {
    // others never write
    let masks = [
        ("000", 0o775),
        ("002", 0o775),
        ("027", 0o750),
        ("077", 0o700),
    ];
    for (mask, mode) in masks {
        let folder = plan(&[("a", noise(1, 1000))]);
        make_folder(&folder, "src/empty");
        map(&folder);
        let login = format!("#!/bin/sh\numask {mask}\nexec \"$@\"\n");
        executable(&folder, "login", &login);
        push(&folder, "--connect './login env'").ends(0);
        let mode_of = |path: &str| fs::metadata(folder.join(path)).unwrap().mode() & 0o777;
        for new in ["ws", "ws/src", "ws/src/empty"] {
            assert_eq!(mode_of(new), mode, "{mask}: {new}");
        }
        assert_eq!(mode_of("ws/src/a"), mode_of("src/a"), "{mask}");
    }
}

#[test]
fn a_new_workspace_that_is_open_to_another_group_is_named_once() {
    if only_root_can("give a directory to a group of others") {
        return;
    }
    for (group, mask, warnings) in [(65534, "002", 1), (65534, "022", 0), (0, "002", 0)] {
        let folder = plan(&[("a", noise(1, 1000))]);
        let login = format!("#!/bin/sh\numask {mask}\nexec \"$@\"\n");
        executable(&folder, "login", &login);
        let give = format!("chgrp {group} . && chmod g+s .");
        sh(&folder, &give).ends(0);
        let warning = "members of a group can write to the new directory";
        let pushes = [1, 2].map(|_| push(&folder, "--connect './login env'"));
        for (nth, ran) in pushes.iter().enumerate() {
            let expected = if nth == 0 { warnings } else { 0 };
            ran.ends(0).err_has_times(warning, expected);
        }
    }
}

/// Otherwise a host would put together a file from parts that nobody has compared.
#[test]
fn slow_a_file_that_is_written_on_its_host_while_it_is_compared_fails() {
    let (first, second) = (noise(1, 6 << 20), noise(2, 4 << 20));
    let folder = plan(&[("a", first), ("b", second.clone())]);
    let there = folder.join("ws/src/b");
    make_folder(&folder, "ws/src");
    fs::write(&there, &second).unwrap();
    sh(&folder, "touch -d 2001-02-03 ws/src/b");
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| push(&folder, "--limit 2MB/s"));
        sh(
            &folder,
            "for try in $(seq 1000); do ls ws/.part-push.*/part.* 2>/dev/null && break; \
             sleep 0.02; done; dd if=/dev/zero of=ws/src/b conv=notrunc bs=100 count=1 seek=9999",
        );
        ran.join().unwrap()
    })
    .ends(1)
    .err_has("ws/src/b: the file that is there changed while it was compared");
    assert!(fs::read(folder.join("ws/src/a")).is_ok());
    push(&folder, "").ends(0);
    assert!(fs::read(&there).unwrap() == second);
}

/// An NFS client shows some time later what another host has written, or never, if it has mounted
/// something else. Here the second host sees an empty directory until somebody takes away what is
/// mounted over it there, two seconds after the file `there` exists.
#[test]
fn slow_a_host_that_shows_late_what_another_one_put_on_shared_storage_has_it() {
    let Some(folder) = with_a_late_host() else {
        return support::skipped!("no right to mount");
    };
    let push = || push(&folder, "--wire ssh --connect './own {id} env'");
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(push);
        sh(
            &folder,
            "for try in $(seq 500); do [ -e ws/src/a ] && break; sleep 0.1; done; touch there",
        );
        ran.join().unwrap()
    });
    ran.ends(0);
    let took = ran.out.matches("\"skipped\":true").count();
    assert!(took > 0, "{}", ran.out);

    for file in ["there", "ws/src/a"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    let variables = "DGL_TOOLS_TEST_SILENCE=3 DGL_TOOLS_CONNECT=";
    let never = sh(
        &folder,
        &format!("{variables} part-push --wire ssh --connect './own {{id}} env' <plan.jsonl"),
    );
    write(&folder, "there", "");
    never
        .ends(1)
        .err_has("it does not see the file that host 0 wrote on shared storage")
        .err_has("  fix: check that both mount the same directory, then push again");
}

fn with_a_late_host() -> Option<PathBuf> {
    let folder = scratch();
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.2\n");
    make_folder(&folder, "src");
    make_folder(&folder, "ws/src");
    write(&folder, "src/a", "a");
    map(&folder);
    executable(
        &folder,
        "way",
        r#"#!/bin/sh
        id=$1
        shift
        [ "$id" = 1 ] || exec "$@"
        mount -t tmpfs none ws/src
        { until [ -e there ]; do sleep 0.1; done; sleep 2; umount -l ws/src; } \
            >&- 2>&- <&- &
        exec "$@"
        "#,
    );
    executable(
        &folder,
        "own",
        "#!/bin/sh\n[ \"$1\" = 1 ] && exec unshare -m ./way \"$@\"\nexec ./way \"$@\"\n",
    );
    let may_mount = sh(&folder, "unshare -m mount -t tmpfs none ws/src").status == 0;
    may_mount.then_some(folder)
}

#[test]
fn real_hosts_on_shared_storage_behind_a_throttled_sshd() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    write(&folder, "src/small", noise(2, 5000));
    // sixteen addresses of one host, whose sshd drops what comes beyond two logins at once
    let ips: String = (101..117).map(|k| format!("10.77.0.{k}\n")).collect();
    write(&folder, "ip.txt", ips);
    let more = format!(
        "for k in $(seq 101 116); do ip addr add 10.77.0.$k/24 dev eth0 || exit 9; done; \
         PATH=$PATH:/usr/sbin; $(command -v sshd) -f '{}/h2/sshd_config' -p 2222 -o PidFile=none \
         -o MaxStartups=2:100:2",
        cluster.lab.display()
    );
    let status = cluster.call(&["exec", "1", "ssh", "h2", &more]).status;
    assert_eq!(status, 0);
    let script = "ipconf-check ip.txt | part-map --workspace /srv/ws --extra src | \
        DGL_TOOLS_HOST_KEY=accept-new DGL_TOOLS_SSH_PORT=2222 part-push";
    let ran = cluster.sh(&folder, script);
    ran.ends(0);
    let records = pushed(&ran.out);
    assert!(
        records.len() == 32 && records.iter().all(|(ok, ..)| *ok),
        "{}",
        ran.out
    );
    assert_eq!(
        records.iter().filter(|(_, sent, _)| *sent > 0).count(),
        2,
        "a file is sent once: {}",
        ran.out
    );
    let ws = cluster.lab.join("h2/srv/ws");
    assert!(
        tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty(),
        "{:?}",
        ours(&ws)
    );
}
