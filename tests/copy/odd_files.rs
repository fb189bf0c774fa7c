//! Files as people have them: links, special files, odd modes, files that grow.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::{Ran, make_folder, read, scratch, sh, write};

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
