//! Files as people have them: links, special files, odd modes, files that grow.

use crate::lab::{copied, tree};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use support::{
    OpenFolder, Ran, executable, make_folder, noise, only_root_can, read, scratch, sh, write,
};

/// The workspace of a local host, and another directory beside it.
fn workspace() -> PathBuf {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    make_folder(&folder, "ws/logs");
    make_folder(&folder, "elsewhere");
    write(&folder, "ws/logs/a.log", "a");
    write(&folder, "elsewhere/far.pt", "far");
    folder
}

fn pull(folder: &Path, patterns: &str) -> Ran {
    let script = format!(
        "rm -rf got; ipconf-check ip.txt | timeout 30 part-pull --connect local \
         --workspace \"$PWD/ws\" --to got {patterns}"
    );
    sh(folder, &script)
}

#[test]
fn each_pattern_that_matches_nothing_is_an_error() {
    let folder = workspace();
    pull(&folder, "'logs/*' 'ckpt/*.pt' 'no*'")
        .ends(1)
        .err_has("host 0 (127.0.0.1) has no file in ")
        .err_has("that matches ckpt/*.pt or no*\n")
        .err_lacks("logs/*");
    assert_eq!(read(&folder, "got/logs/a.log"), "a");
    pull(&folder, "--dry-run 'logs/*' 'ckpt/*.pt'")
        .ends(1)
        .err_has("that matches ckpt/*.pt\n");
    pull(&folder, "logs 'logs/*' 'l*'")
        .ends(0)
        .err_lacks("match");
}

/// Rank 0 alone writes the model.
#[test]
fn a_pattern_that_matches_on_some_hosts_only_is_told() {
    let folder = scratch();
    for host in [0, 1, 2] {
        write(&folder, format!("h{host}/log"), "log");
    }
    write(&folder, "h0/model.pt", "model");
    let hosts = "ipconf-check ip.txt";
    write(&folder, "ip.txt", "10.0.0.1\n10.0.0.2\n10.0.0.3\n");
    // a host sees its own directory as the home
    let route = "env HOME=$PWD/h{id}";
    let ran = sh(
        &folder,
        &format!(
            "{hosts} | part-pull --connect \"{route}\" --workspace '~/' --to got log model.pt"
        ),
    );
    ran.ends(0)
        .err_has("part-pull: no file matches model.pt on host 1 (10.0.0.2), host 2 (10.0.0.3)\n")
        .err_lacks("matches log");
    assert_eq!(read(&folder, "got/h0/model.pt"), "model");
}

#[test]
fn links_on_a_host_are_copied_as_what_they_lead_to() {
    let folder = workspace();
    let ws = folder.join("ws");
    write(&ws, "epoch_9.pt", "nine");
    symlink("epoch_9.pt", ws.join("last.pt")).unwrap();
    symlink("last.pt", ws.join("best.pt")).unwrap();
    symlink(ws.join("epoch_9.pt"), ws.join("absolute.pt")).unwrap();
    symlink("logs", ws.join("latest")).unwrap();
    symlink("../epoch_9.pt", ws.join("logs/model.pt")).unwrap();
    let ran = pull(&folder, "'*'");
    ran.ends(0).err_lacks("left out");
    for name in [
        "last.pt",
        "best.pt",
        "absolute.pt",
        "logs/model.pt",
        "latest/model.pt",
    ] {
        assert_eq!(read(&folder, format!("got/{name}")), "nine", "{name}");
        let meta = fs::symlink_metadata(folder.join("got").join(name)).unwrap();
        assert!(meta.is_file(), "{name}");
    }
    assert_eq!(read(&folder, "got/latest/a.log"), "a");
    // larger than what travels with others
    write(&ws, "epoch_9.pt", vec![7; 20 << 20]);
    pull(&folder, "last.pt").ends(0);
    assert!(fs::read(folder.join("got/last.pt")).unwrap() == vec![7; 20 << 20]);
}

#[test]
fn a_link_that_leads_out_of_the_workspace_is_an_error_unless_it_is_named() {
    let folder = workspace();
    let ws = folder.join("ws");
    symlink("../elsewhere/far.pt", ws.join("far.pt")).unwrap();
    symlink("../elsewhere", ws.join("data")).unwrap();
    write(&ws, "near.pt", "near");
    let ran = pull(&folder, "'*.pt'");
    ran.ends(1)
        .err_has("host 0 (127.0.0.1): ./far.pt: this symbolic link leads out of the workspace");
    assert_eq!(read(&folder, "got/near.pt"), "near");
    pull(&folder, "'*'")
        .ends(1)
        .err_has("./data: this symbolic link leads out");
    pull(&folder, "'*' far.pt data").ends(0);
    assert_eq!(read(&folder, "got/far.pt"), "far");
    assert_eq!(read(&folder, "got/data/far.pt"), "far");
}

/// What leads out of the workspace is an error only where a pattern could match it.
#[test]
fn a_link_to_a_file_that_no_pattern_matches_is_no_error() {
    let folder = workspace();
    let ws = folder.join("ws");
    write(&ws, "a.pt", "a");
    write(&ws, "logs/b.pt", "b");
    write(&folder, "elsewhere/notes", "notes");
    symlink("../elsewhere/notes", ws.join("notes")).unwrap();
    symlink("../../elsewhere/notes", ws.join("logs/notes")).unwrap();
    for (pattern, copied) in [("**/*.pt", "a.pt"), ("*/*.pt", "logs/b.pt")] {
        pull(&folder, &format!("'{pattern}'"))
            .ends(0)
            .err_lacks("leads out");
        assert!(folder.join("got").join(copied).exists(), "{pattern}");
    }
    // it does not hide that a pattern matches nothing
    pull(&folder, "'*/*.bin' 'logs/*.bin'")
        .ends(1)
        .err_lacks("leads out")
        .err_has("that matches */*.bin or logs/*.bin\n");
    // a directory might have files that match
    symlink("../elsewhere", ws.join("data")).unwrap();
    pull(&folder, "'*/*.pt'")
        .ends(1)
        .err_has("./data: this symbolic link leads out");
}

/// Every file below a directory, by its name there.
fn names(folder: &Path) -> Vec<PathBuf> {
    tree(folder).into_keys().collect()
}

/// The results of a pull may be in the workspace of a host, or of several that share it.
#[test]
fn what_a_pull_has_brought_is_not_brought_again() {
    // the hosts, where the files go, and what has arrived after each of three pulls
    let table: [(&str, &str, &[&str]); 3] = [
        (
            "127.0.0.1",
            "results",
            &["results/deep/b.pt", "results/model.pt"],
        ),
        (
            "10.0.0.1\n10.0.0.2",
            "results",
            &[
                "results/h0/deep/b.pt",
                "results/h0/model.pt",
                "results/h1/deep/b.pt",
                "results/h1/model.pt",
            ],
        ),
        (
            "10.0.0.1\n10.0.0.2",
            ".",
            &["h0/deep/b.pt", "h0/model.pt", "h1/deep/b.pt", "h1/model.pt"],
        ),
    ];
    for (hosts, to, expected) in table {
        let folder = scratch();
        write(&folder, "ip.txt", format!("{hosts}\n"));
        write(&folder, "ws/model.pt", "model");
        write(&folder, "ws/deep/b.pt", "b");
        let script = format!(
            "cd ws; ipconf-check ../ip.txt | part-pull --connect 'env A=b' --workspace \"$PWD\" \
             --to {to} '**/*.pt'"
        );
        let mut all: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
        all.extend(["model.pt", "deep/b.pt"].map(PathBuf::from));
        all.sort();
        // a dry run plans the same, and changes no directory
        let dry = |planned: usize| {
            let times = "find ws -exec stat -c '%n %y %z' {} +";
            let before = sh(&folder, times).out;
            let ran = sh(&folder, &script.replace("part-pull", "part-pull --dry-run"));
            assert_eq!(
                ran.ends(0).out.matches("->").count(),
                planned,
                "{to}: {}",
                ran.out
            );
            assert_eq!(sh(&folder, times).out, before, "{to}: the dry run");
        };
        dry(expected.len());
        for round in 0..3 {
            sh(&folder, &script).ends(0);
            assert_eq!(names(&folder.join("ws")), all, "{to}: {round}");
        }
        dry(0);
    }
}

/// A fault of this machine is not one of the host or of the connection.
#[test]
fn what_is_in_the_way_of_a_pull_is_to_be_corrected_here() {
    let table = [
        ("ln -s ../elsewhere got/logs", "leads out of --to"),
        ("echo file >got/logs", "Not a directory"),
        ("mkdir -p got/logs/a.log", "a directory has its name here"),
    ];
    for (lays, problem) in table {
        let folder = workspace();
        sh(&folder, &format!("mkdir got; {lays}")).ends(0);
        let script = "ipconf-check ip.txt | timeout 30 part-pull --connect local --workspace \
            \"$PWD/ws\" --to got logs";
        sh(&folder, script)
            .ends(1)
            .err_has(problem)
            .err_has("fix: correct this on this machine, or give another directory with --to")
            .err_lacks("workspace");
    }
}

/// Parts that must be on their host: nothing is written, no directory of a push is made.
#[test]
fn a_push_that_writes_nothing_needs_no_workspace() {
    let folder = scratch();
    write(&folder, "there/part0", "part");
    let records = |name: &str| {
        let dst = folder.join("there").join(name);
        format!(
            "{{\"type\":\"file\",\"id\":0,\"of\":1,\"host\":0,\"kind\":\"partition\",\
             \"dst\":\"{}\",\"bytes\":0,\"mode\":420}}\n",
            dst.display()
        )
    };
    for (name, status) in [("part0", 0), ("part1", 1)] {
        write(&folder, "files", records(name));
        let push = "{ echo 127.0.0.1 | ipconf-check; cat files; } | part-push --connect local";
        let ran = sh(&folder, push);
        ran.ends(status).err_lacks("is an absolute path");
        assert_eq!(names(&folder.join("there")), [PathBuf::from("part0")]);
    }
}

/// DGL opens a part by its name, so it follows links.
#[test]
fn a_part_that_must_be_on_its_host_may_be_a_link() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "scratch/graph/graph.dgl", "graph");
    write(&folder, "scratch/file", "part");
    write(&folder, "scratch/empty", "");
    make_folder(&folder, "ws/data");
    let check = "ipconf-check ip.txt | part-map --partitions data --parts remote --workspace \
        \"$PWD/ws\" | part-push --connect local";
    let part = folder.join("ws/data/part0");
    let leads_to = |target: &str| {
        let _ = fs::remove_file(&part);
        symlink(target, &part).unwrap();
        sh(&folder, check)
    };
    for target in ["graph", "file"] {
        leads_to(&format!("../../scratch/{target}")).ends(0);
        leads_to(&folder.join("scratch").join(target).display().to_string()).ends(0);
    }
    for (target, why) in [
        ("../../scratch/none", "it is a broken symbolic link"),
        ("../../scratch/file/none", "it is a broken symbolic link"),
        ("part0", "Too many levels of symbolic links"),
        ("../../scratch/empty", "it is an empty file on the host"),
        (
            "/dev/null",
            "it is neither a file nor a directory on the host",
        ),
    ] {
        let ran = leads_to(target);
        ran.ends(1).err_has("data/part0: ").err_has(why);
    }
    fs::remove_file(&part).unwrap();
    sh(&folder, check)
        .ends(1)
        .err_has("part0: it is missing on");
}

/// A stream that was edited, or comes from another program.
#[test]
fn sizes_that_no_disk_has_are_refused() {
    let folder = source();
    map(&folder, "--extra src").ends(0);
    for (file, size, status, problem) in [
        ("[ab]", u64::MAX, 65, "are 2^64 bytes or more"),
        ("[ab]", 1 << 63, 65, "are 2^64 bytes or more"),
        ("a", u64::MAX - 1000, 1, "no space left"),
    ] {
        let script = format!(
            "sed '/src.{file}\"/s/\"bytes\":[0-9]*/\"bytes\":{size}/' plan.jsonl | \
             part-push --connect local"
        );
        sh(&folder, &script)
            .ends(status)
            .err_has(problem)
            .err_lacks("panicked");
    }
}

#[test]
fn what_has_no_content_on_a_host_is_left_out_with_a_word() {
    let folder = workspace();
    let ws = folder.join("ws");
    for (link, target) in [
        ("broken", "missing"),
        ("loop", "loop"),
        ("one", "two"),
        ("two", "one"),
        ("up", "."),
        ("logs/up", ".."),
    ] {
        symlink(target, ws.join(link)).unwrap();
    }
    sh(
        &folder,
        "mkfifo ws/logs/fifo; mkdir ws/x ws/y; echo x >ws/x/x; ln -s ../y ws/x/y; ln -s ../x \
         ws/y/x; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"ws/sock\")'",
    )
    .ends(0);
    let ran = pull(&folder, "'*'");
    ran.ends(0)
        .err_has("part-pull: left out ./broken on host 0 (127.0.0.1): it is a broken symbolic link")
        .err_has_times("left out", 1);
    assert_eq!(read(&folder, "got/logs/a.log"), "a");
    assert_eq!(read(&folder, "got/y/x/x"), "x\n");
    // only what matches is counted
    pull(&folder, "logs").ends(0).err_has(
        "left out ./logs/fifo on host 0 (127.0.0.1): it is not a regular file (and 1 more",
    );
    for named in ["sock", "broken", "loop"] {
        pull(&folder, named)
            .ends(1)
            .err_has(&format!("left out ./{named} on host 0"))
            .err_has(&format!(
                "has no file in {}/ws that matches {named}",
                folder.display()
            ));
    }
}

#[test]
fn a_workspace_that_cannot_be_opened_is_not_called_missing() {
    let folder = workspace();
    fs::rename(folder.join("ws"), folder.join("real")).unwrap();
    symlink("ws", folder.join("ws")).unwrap();
    pull(&folder, "log")
        .ends(74)
        .err_has("Too many levels of symbolic links")
        .err_lacks("there is no directory");
    fs::remove_file(folder.join("ws")).unwrap();
    pull(&folder, "log")
        .ends(74)
        .err_has("there is no directory");
}

/// A directory `src` that goes to the workspace `ws` of this machine.
fn source() -> PathBuf {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    make_folder(&folder, "src");
    write(&folder, "src/a", "a");
    write(&folder, "src/b", "b");
    folder
}

fn map(folder: &Path, options: &str) -> Ran {
    let script = format!(
        "ipconf-check ip.txt | timeout 20 part-map --workspace \"$PWD/ws\" {options} >plan.jsonl"
    );
    sh(folder, &script)
}

fn push(folder: &Path) -> Ran {
    sh(folder, "timeout 30 part-push --connect local <plan.jsonl")
}

#[test]
fn a_fifo_in_the_place_of_a_file_does_not_block_a_push() {
    let folder = source();
    write(&folder, "src/large", noise(1, 17 << 20));
    map(&folder, "--extra src").ends(0);
    push(&folder).ends(0);
    sh(&folder, "rm src/a src/large; mkfifo src/a src/large").ends(0);
    for options in ["", "--verify"] {
        sh(
            &folder,
            "echo other >ws/src/a; truncate -s 17825792 ws/src/large",
        )
        .ends(0);
        let script = format!("timeout 30 part-push {options} --connect local <plan.jsonl");
        sh(&folder, &script)
            .ends(1)
            .err_has_times("it is not a regular file any more", 2);
    }
    assert_eq!(read(&folder, "ws/src/b"), "b");
}

#[test]
fn a_copy_never_has_more_rights_than_its_source() {
    let folder = source();
    for (name, mode) in [("src/a", 0o000), ("src/b", 0o600)] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    if only_root_can("read a file of mode 000") {
        return;
    }
    map(&folder, "--extra src").ends(0);
    push(&folder).ends(0);
    sh(&folder, "stat -c '%a %n' ws/src/*").gives(0, "0 ws/src/a\n600 ws/src/b\n");
    push(&folder).ends(0).out_has_times("\"skipped\":true", 3);
    // a record that was written by hand
    sh(
        &folder,
        "rm -r ws; jq -c 'if .type == \"file\" then .mode = 2541 else . end' plan.jsonl >by-hand; \
         part-push --connect local <by-hand >out; stat -c %a ws/src/a",
    )
    .gives(0, "755\n");
}

#[test]
fn what_has_no_content_here_is_left_out_with_a_word() {
    let folder = source();
    sh(
        &folder,
        "cd src && mkfifo pipe && ln -s missing broken && ln -s loop loop && mkdir deep && \
         ln -s .. deep/up && \
         python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'",
    )
    .ends(0);
    for option in ["--extra src", "--script-folder src"] {
        map(&folder, option)
            .ends(0)
            .err_has("part-map: warning: left out ")
            .err_has("/src/broken: it is a broken symbolic link (and 4 more that have no content)")
            .err_has_times("left out", 1);
        push(&folder).ends(0);
        sh(
            &folder,
            "cd ws/src; find . ! -type d | sort; rm -r ../../ws",
        )
        .gives(0, "./a\n./b\n");
    }
    map(
        &folder,
        "--extra src --exclude sock --exclude pipe --exclude 'b*' --exclude '*p'",
    )
    .ends(0)
    .err_lacks("left out");
    // but not if it is what was asked for
    map(&folder, "--extra src/pipe")
        .ends(65)
        .err_has("src/pipe: is neither a file nor a directory");
    map(&folder, "--extra src/broken")
        .ends(74)
        .err_has("src/broken: No such file");
}

#[test]
fn an_environment_is_left_out_whatever_its_name_is() {
    let folder = source();
    for (name, mark) in [("venv", "pyvenv.cfg"), ("deep/env", "conda-meta/history")] {
        write(&folder, format!("src/{name}/{mark}"), "");
        write(&folder, format!("src/{name}/bin/python"), "python");
    }
    write(&folder, "src/.venv/pyvenv.cfg", "");
    let arrived = || sh(&folder, "find ws/src -name python | sort").out;
    map(&folder, "--script-folder src")
        .ends(0)
        .err_has("src/deep/env (and 1 more): a Python environment works only where it was made")
        .err_has("host-probe --venv");
    push(&folder).ends(0);
    assert_eq!(arrived(), "");
    map(&folder, "--script-folder src --exclude '!venv'").ends(0);
    push(&folder).ends(0);
    assert_eq!(arrived(), "ws/src/venv/bin/python\n");
    // one that is named itself is wanted
    map(&folder, "--extra src/venv")
        .ends(0)
        .err_lacks("environment");
}

#[test]
fn content_that_has_several_names_is_told() {
    let folder = source();
    write(&folder, "src/blobs/hash", noise(1, 6 << 20));
    make_folder(&folder, "src/snapshots");
    symlink("../blobs/hash", folder.join("src/snapshots/model")).unwrap();
    map(&folder, "--script-folder src")
        .ends(0)
        .err_lacks("more than once");
    fs::hard_link(folder.join("src/blobs/hash"), folder.join("src/last")).unwrap();
    map(&folder, "--script-folder src")
        .ends(0)
        .err_has("13 MB are copied more than once, because they have several names: ")
        .err_has("ws/src/blobs/hash and ")
        .err_has(" are links to one file (and 1 more)");
    map(
        &folder,
        "--script-folder src --exclude blobs --exclude last",
    )
    .ends(0)
    .err_lacks("more than once");
}

#[test]
fn a_file_that_is_named_twice_arrives_once() {
    let folder = source();
    symlink("a", folder.join("src/link")).unwrap();
    make_folder(&folder, "src/empty");
    let twice = "--script-folder src --extra src --extra src/a:src/a --extra src/link:src/a";
    map(&folder, twice).ends(0);
    let ran = push(&folder);
    ran.ends(0);
    let ok: Vec<bool> = copied(&ran.out).iter().map(|copied| copied.ok).collect();
    assert_eq!(ok, [true; 5], "a, b, link, empty/ and ip_config.txt");
    map(&folder, "--extra src --extra src/b:src/a")
        .ends(65)
        .err_has("src/b: goes to ")
        .err_has("and so does");
}

#[test]
fn a_file_goes_into_the_directory_that_is_its_destination() {
    let folder = source();
    for (extra, place) in [
        ("src/a:", "a"),
        ("src/a:.", "a"),
        ("src/a:conf/", "conf/a"),
        ("src/a:conf", "conf"),
        ("src:", "a"),
        ("src:conf/", "conf/a"),
    ] {
        sh(&folder, "rm -rf ws");
        map(&folder, &format!("--extra {extra}")).ends(0);
        push(&folder).ends(0);
        assert_eq!(read(&folder, format!("ws/{place}")), "a", "{extra}");
    }
}

#[test]
fn part_map_refuses_a_destination_that_part_push_refuses() {
    let folder = source();
    map(&folder, "--extra src:/elsewhere")
        .ends(65)
        .err_has("src/a: goes to /elsewhere/a, which is not below the workspace, ")
        .err_has("fix: name a path below the workspace");
    map(&folder, "--ip-config /elsewhere/ip")
        .ends(65)
        .err_has("which is not below the workspace");
}

#[test]
fn an_ip_config_of_the_users_is_not_replaced() {
    let folder = source();
    let own = "# my hosts\n127.0.0.1 30050\n";
    write(&folder, "ws/ip_config.txt", own);
    map(&folder, "--extra src").ends(0);
    push(&folder)
        .ends(1)
        .err_has("ws/ip_config.txt: the host has an ip_config with comments, names or logins")
        .err_has("--ip-config NAME");
    assert_eq!(read(&folder, "ws/ip_config.txt"), own);
    assert_eq!(read(&folder, "ws/src/a"), "a", "the others arrive");
    map(&folder, "--extra src --ip-config hosts.txt").ends(0);
    push(&folder).ends(0);
    assert_eq!(read(&folder, "ws/hosts.txt"), "127.0.0.1 30050\n");
    // one that part-map has written for other hosts
    write(&folder, "ws/hosts.txt", "10.0.0.1 30050\n");
    push(&folder).ends(0);
    assert_eq!(read(&folder, "ws/hosts.txt"), "127.0.0.1 30050\n");
}

#[test]
fn a_directory_in_the_place_of_a_file_costs_no_transfer() {
    let folder = source();
    write(&folder, "src/large", noise(1, 3 << 20));
    map(&folder, "--extra src").ends(0);
    make_folder(&folder, "ws/src/large");
    let ran = push(&folder);
    ran.ends(1)
        .err_has("ws/src/large: a directory on the host has its name");
    let sent: u64 = copied(&ran.out).iter().map(|copied| copied.moved).sum();
    assert!(sent < 1000, "{sent}");
    make_folder(&folder, "got/src/large");
    fs::remove_dir(folder.join("ws/src/large")).unwrap();
    push(&folder).ends(0);
    let script = "ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got \
        src";
    let ran = sh(&folder, script);
    ran.ends(1)
        .err_has("src/large: a directory has its name here")
        .out_has("\"received_bytes\":0");
    assert_eq!(read(&folder, "got/src/a"), "a");
}

/// The file of another user in a directory with the sticky bit cannot be replaced.
#[test]
fn what_could_not_get_its_name_is_not_sent_again() {
    if only_root_can("act as another user") {
        return;
    }
    let OpenFolder(folder) = &OpenFolder::new("sticky");
    write(folder, "ip.txt", "127.0.0.1\n");
    write(folder, "large", noise(1, 3 << 20));
    map(folder, "--extra large:deep/large").ends(0);
    write(folder, "ws/deep/large", "root's");
    sh(folder, "chmod 777 ws; chmod 1777 ws/deep").ends(0);
    let push = || {
        sh(
            folder,
            "part-push --connect 'setpriv --reuid=65534 --regid=65534 --clear-groups env' \
             <plan.jsonl",
        )
    };
    push()
        .ends(1)
        .err_has("ws/deep/large: Operation not permitted");
    assert_eq!(read(folder, "ws/deep/large"), "root's");
    fs::remove_file(folder.join("ws/deep/large")).unwrap();
    let ran = push();
    ran.ends(0);
    let sent: u64 = copied(&ran.out).iter().map(|copied| copied.moved).sum();
    assert!(sent < 1 << 20, "{sent}");
    assert_eq!(
        fs::read(folder.join("ws/deep/large")).unwrap(),
        noise(1, 3 << 20)
    );
}

/// What cannot be examined on a host is not taken for missing.
#[test]
fn what_is_closed_on_a_host_is_not_missing() {
    if only_root_can("act as another user") {
        return;
    }
    let OpenFolder(folder) = &OpenFolder::new("closed");
    write(folder, "ip.txt", "127.0.0.1\n");
    map(folder, "--per-host 'shards/{host}.npz' --parts remote").ends(0);
    write(folder, "ws/shards/0.npz", "there");
    sh(folder, "chmod 777 ws; chmod 700 ws/shards").ends(0);
    let push = "part-push --connect 'setpriv --reuid=65534 --regid=65534 --clear-groups env' \
        <plan.jsonl";
    sh(folder, push)
        .ends(1)
        .err_has("shards/0.npz: the existing file cannot be examined: Permission denied")
        .err_lacks("is not there");
    sh(folder, "chmod 755 ws/shards");
    sh(folder, push).ends(0);
}

/// The log of a job that runs.
#[test]
fn a_file_that_grows_while_it_is_pulled_arrives_as_its_beginning() {
    let folder = workspace();
    let line = "0123456789abcdef\n";
    write(&folder, "ws/logs/a.log", line.repeat(100_000));
    write(&folder, "ws/logs/b.log", line);
    executable(
        &folder,
        "grow",
        "#!/bin/sh\nuntil [ -e stop ]; do for log in a b; do \
         echo 0123456789abcdef >>ws/logs/$log.log; done; sleep 0.02; done\n",
    );
    // so that the logs grow between the listing and the request
    executable(
        &folder,
        "late",
        "#!/bin/sh\n\"$@\" | python3 -c 'import os, time\nwhile data := os.read(0, 65536):\n if \
         len(data) < 4096: time.sleep(0.3)\n while data: data = data[os.write(1, data):]'\n",
    );
    let script = "./grow & until [ $(wc -c <ws/logs/b.log) -gt 100 ]; do sleep 0.05; done
        ipconf-check ip.txt | timeout 60 part-pull --connect './late env' --wire ssh --workspace \
        \"$PWD/ws\" --to got logs; status=$?; touch stop; wait; exit $status";
    let ran = sh(&folder, script);
    ran.ends(0)
        .err_has("part-pull: host 0 (127.0.0.1): ./logs/")
        .err_has(" grew while it was copied; the first ");
    for log in ["a.log", "b.log"] {
        let (here, there) = (
            read(&folder, format!("got/logs/{log}")),
            read(&folder, format!("ws/logs/{log}")),
        );
        assert!(!here.is_empty() && there.starts_with(&here), "{log}");
    }
    // by now it does not grow, and is whole
    sh(
        &folder,
        "ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got logs",
    )
    .ends(0)
    .err_lacks("grew");
    assert_eq!(
        read(&folder, "got/logs/a.log"),
        read(&folder, "ws/logs/a.log")
    );
}
