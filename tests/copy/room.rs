//! What does not fit, or would be one name: known before anything is written.

use crate::lab::{copied, tree};
use crate::local::{map, ours, plan, push, pushed};
use std::fs;
use std::path::Path;
use support::{Ran, executable, make_folder, noise, read, sh, write};

/// A way to this machine whose requests or events go through a filter in Python, `data = …`.
fn filtered(folder: &Path, name: &str, requests: &str, events: &str) {
    let pass = |filter: &str| {
        format!(
            "import os, re\nwhile data := os.read(0, 1 << 20):\n {filter}\n while data: data = \
             data[os.write(1, data):]"
        )
    };
    let script = format!(
        "#!/bin/sh\npython3 -c '{}' | \"$@\" | python3 -c '{}'\n",
        pass(requests),
        pass(events)
    );
    executable(folder, name, &script);
}

#[test]
fn names_that_differ_in_case_are_a_fault_where_they_are_one() {
    let folder = plan(&[("Model.pt", b"one".to_vec()), ("model.pt", b"two".to_vec())]);
    // the host finds the directory of the push by its name in upper case, too
    let fold = "data = re.sub(rb\"[.]PART-PUSH[^\\0]*\", lambda name: name[0].lower(), data)";
    filtered(&folder, "folds", fold, "pass");
    push(&folder, "--wire ssh --connect './folds env'")
        .ends(1)
        .err_has("src/Model.pt and ")
        .err_has("src/model.pt have the same name there: its file system does not tell")
        .err_has("nothing was sent to any host");
    assert!(!folder.join("ws/src").exists() && ours(&folder.join("ws")).is_empty());
    // on this one they are two
    push(&folder, "").ends(0);
    assert!(tree(&folder.join("ws/src")) == tree(&folder.join("src")));

    let pull = "ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got \
                src";
    write(&folder, "got/.PART-PULL.LOCK", "");
    sh(&folder, pull)
        .ends(74)
        .err_has("got/src/Model.pt and got/src/model.pt would be one file");
    assert!(!folder.join("got/src").exists());
    fs::remove_file(folder.join("got/.PART-PULL.LOCK")).unwrap();
    sh(&folder, pull).ends(0);
    assert!(tree(&folder.join("got/src")) == tree(&folder.join("src")));
}

#[test]
fn nothing_is_sent_where_inodes_do_not_suffice() {
    let names: Vec<String> = (0..100).map(|number| format!("{number}")).collect();
    let files: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), b"x".to_vec()))
        .collect();
    let folder = plan(&files);
    make_folder(&folder, "ws");
    let script = "mount -t tmpfs -o nr_inodes=60 none ws || exit 99
        DGL_TOOLS_CONNECT=local part-push <plan.jsonl >out; echo $?; ls ws";
    let ran = sh(&folder, &format!("unshare -rm sh -c '{script}'"));
    if ran.status == 99 {
        return support::skipped!("no right to mount");
    }
    ran.err_has("not enough inodes: 101 new files to send, ")
        .err_has(" inodes free (df -i)");
    assert_eq!(ran.out, "1\n");
}

/// As some mounts of SMB do. What is there already is known by its size and time.
#[test]
fn a_file_system_that_keeps_no_permissions_gets_nothing_again() {
    let folder = plan(&[("a", noise(1, 1000)), ("large", noise(2, 3 << 20))]);
    let odd = "strace -f -qq -o /dev/null -e trace=fchmod -e inject=fchmod:retval=0 env";
    if sh(&folder, &format!("{odd} true")).status != 0 {
        return support::skipped!("no strace here");
    }
    push(&folder, &format!("--connect '{odd}'")).ends(0);
    let mode = fs::metadata(folder.join("ws/src/a")).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777,
        0o600
    );
    let again = push(&folder, &format!("--connect '{odd}'"));
    assert!(
        pushed(&again.out)
            .iter()
            .all(|(ok, sent, _)| *ok && *sent == 0),
        "{}",
        again.out
    );
    // this one keeps them
    let sent: u64 = pushed(&push(&folder, "").out)
        .iter()
        .map(|(_, sent, _)| sent)
        .sum();
    assert!(sent >= 1000, "{sent}");
}

/// What is there already can be confirmed, whether or not there is room for a lock.
#[test]
fn a_full_disk_does_not_stop_a_push_that_has_nothing_to_send() {
    let folder = plan(&[("a", noise(1, 1000))]);
    make_folder(&folder, "ws");
    let script = "mount -t tmpfs -o size=3m none ws || exit 99
        export DGL_TOOLS_CONNECT=local; part-push <plan.jsonl >first || exit 98
        cat /dev/zero >ws/full 2>&-; part-push <plan.jsonl >second; echo $?
        echo more >src/b; ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra src \
         >plan.jsonl; part-push <plan.jsonl >third; echo $?; ls -A ws ws/src";
    write(&folder, "script", script);
    let ran = sh(&folder, "unshare -rm sh script");
    if ran.status == 99 {
        return support::skipped!("no right to mount");
    }
    assert_eq!(
        ran.out, "0\n1\nws:\nfull\nip_config.txt\nsrc\n\nws/src:\na\n",
        "{}",
        ran.err
    );
    ran.err_has("no space left: ");
}

/// Pulls from two hosts, of which the first lists files of 1000 or 3,000,000 bytes with these words
/// in the place of their size.
fn pull_with_sizes(folder: &Path, size: &str) -> Ran {
    let listed = "\"size\":(1000|3000000),(\"mode\":33)";
    let lists = format!("data = re.sub(rb'''{listed}''', rb'''{size},\\2''', data)");
    filtered(folder, "lists", "pass", &lists.replace('\'', "\""));
    let way = "#!/bin/sh\nhost=$1; shift\n[ $host = 10.77.0.1 ] || exec \"$@\"\nexec ./lists \
               \"$@\"\n";
    executable(folder, "way", way);
    write(folder, "ip.txt", "10.77.0.1\n10.77.0.2\n");
    sh(
        folder,
        "rm -rf got; ipconf-check ip.txt | part-pull --wire ssh --connect './way {ip} env' \
         --workspace \"$PWD/ws\" --to got src",
    )
}

/// A host may announce any size, or any part of it that is no hole. The other hosts are served.
#[test]
fn a_host_whose_files_do_not_fit_here_is_refused() {
    let folder = plan(&[("a", noise(1, 1000)), ("b", noise(2, 1000))]);
    push(&folder, "").ends(0);
    let table = [
        (
            "\"size\":2000000000000000",
            "no space left here: 4.0 PB are to be copied, ",
        ),
        (
            "\"size\":9000000000000000,\"sent\":3000000000000000",
            "no space left here: 6.0 PB are to be copied, ",
        ),
        // more than all hosts together may have
        (
            "\"size\":18000000000000000000",
            "its files together have more than 9223372036854775807 bytes",
        ),
        (
            "\"size\":9000000000000000000",
            "its files together have more than 9223372036854775807 bytes",
        ),
    ];
    for (size, problem) in table {
        pull_with_sizes(&folder, size)
            .ends(74)
            .err_has(&format!("host 0 (10.77.0.1): {problem}"));
        assert!(!folder.join("got/h0/src").exists(), "{size}");
        let other = fs::read(folder.join("got/h1/src/a")).unwrap();
        assert_eq!(other, noise(1, 1000), "{size}");
    }
}

/// The room for its file would not have been counted.
#[test]
fn a_host_that_sends_more_than_it_has_announced_is_not_believed() {
    let folder = plan(&[("large", noise(1, 3_000_000)), ("small", noise(2, 10))]);
    push(&folder, "").ends(0);
    let file = |host: &str| folder.join(format!("got/{host}/src/large"));
    pull_with_sizes(&folder, "\"size\":3000000,\"sent\":1048576")
        .ends(1)
        .err_has("src/large: it changed on the host while it was read");
    assert!(!file("h0").exists() && file("h1").exists());
    assert!(folder.join("got/h0/src/small").exists());
    pull_with_sizes(&folder, "\"size\":3000000,\"sent\":3000000").ends(0);
    assert!(file("h0").exists());
}

#[test]
fn files_of_a_single_host_that_make_way_are_named() {
    let folder = plan(&[("a", b"one".to_vec())]);
    push(&folder, "").ends(0);
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.2\n");
    let pull = |hosts: &str, options: &str| {
        let script = format!(
            "{hosts} | part-pull {options} --connect local --workspace \"$PWD/ws\" --to got src"
        );
        sh(&folder, &script)
    };
    let all = "ipconf-check ip.txt";
    pull(all, "--host 0").ends(0).err_lacks("replaced");
    write(&folder, "ws/src/a", "another");
    pull(all, "--host 1")
        .ends(0)
        .err_has("1 file will be replaced, got/src/a first\n  fix: to keep what is there");
    assert_eq!(read(&folder, "got/src/a"), "another");
    // the one host that is left of two keeps its place
    pull("ipconf-check ip.txt | grep -v '\"id\":0'", "--partial").ends(0);
    assert_eq!(read(&folder, "got/h1/src/a"), "another");
}

/// A pattern without `**` does not lead into directories that it cannot match.
#[test]
fn directories_in_which_nothing_can_match_are_not_entered() {
    let folder = plan(&[("a", b"a".to_vec())]);
    for name in [
        "ws/one.pt",
        "ws/deep/er/two.pt",
        "ws/dir.pt/three",
        "ws/logs/0/four.pt",
    ] {
        write(&folder, name, "x");
    }
    let pull = |pattern: &str| {
        let script = format!(
            "rm -rf got; ipconf-check ip.txt | part-pull --connect 'strace -f -qq -e \
             trace=openat -o trace env' --workspace \"$PWD/ws\" --to got '{pattern}'; cat trace"
        );
        let trace = sh(&folder, &script).out;
        (tree(&folder.join("got")).len(), trace)
    };
    let entered = |trace: &str, name: &str| {
        let is_of =
            |line: &str| line.contains(&format!("\"{name}\", ")) && !line.contains("O_PATH");
        trace.lines().any(is_of)
    };
    let (_, trace) = pull("*.pt");
    if trace.is_empty() {
        return support::skipped!("no strace here");
    }
    assert!(folder.join("got/one.pt").exists() && folder.join("got/dir.pt/three").exists());
    assert!(
        entered(&trace, "dir.pt") && !entered(&trace, "deep"),
        "{trace}"
    );
    pull("logs/*/*.pt");
    assert!(folder.join("got/logs/0/four.pt").exists());
    let (_, trace) = pull("**/*.pt");
    assert!(entered(&trace, "er"), "{trace}");
    assert!(folder.join("got/deep/er/two.pt").exists());
}

/// The host that gets the files for all is lost: the next one gets them.
#[test]
fn slow_another_host_takes_over_when_the_first_of_a_shared_workspace_is_lost() {
    let folder = plan(&[("a", noise(1, 1000)), ("large", noise(2, 12 << 20))]);
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.2\n10.77.0.3\n");
    map(&folder);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nhost=$1; shift\n[ $host = 10.77.0.1 ] || exec \"$@\"\nexec 3<&0; \"$@\" <&3 & \
         agent=$!\n\
         until [ -e ws/.part-push.*.0/part.* ]; do sleep 0.02; done\nsleep 0.5; kill -9 $agent\n",
    );
    let ran = push(
        &folder,
        "--wire ssh --limit 4MB/s --connect './way {ip} env'",
    );
    ran.ends(74).err_has("host 0 (10.77.0.1): ");
    let records = pushed(&ran.out);
    let whole = |(ok, ..): &&(bool, u64, String)| *ok;
    assert!(
        records.iter().filter(whole).count() >= 6,
        "{}{}",
        ran.out,
        ran.err
    );
    assert!(records.len() == 9, "{}", ran.out);
    assert!(
        tree(&folder.join("ws/src")) == tree(&folder.join("src")),
        "{}",
        ran.err
    );
}

/// The stream promises a record for each delivery.
#[test]
fn slow_each_delivery_has_its_record_after_a_signal() {
    let folder = plan(&[("a", noise(1, 1000)), ("large", noise(2, 40 << 20))]);
    for hosts in [1, 2] {
        let list: String = (1..=hosts)
            .map(|host| format!("10.77.0.{host}\n"))
            .collect();
        write(&folder, "ip.txt", list);
        map(&folder);
        let mut told = 0;
        for wait in ["0.1", "0.3", "0.6", "1.5"] {
            let script = format!(
                "rm -rf ws; DGL_TOOLS_CONNECT=local timeout -s INT {wait} part-push --limit \
                 4MB/s <plan.jsonl"
            );
            let ran = sh(&folder, &script);
            // it was passed on, or not even that
            if !ran.out.is_empty() {
                told += 1;
                assert_eq!(
                    copied(&ran.out).len(),
                    3 * hosts,
                    "{wait}: {}{}",
                    ran.out,
                    ran.err
                );
            }
        }
        assert!(told > 0);
    }
}
