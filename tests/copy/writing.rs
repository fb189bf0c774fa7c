//! part-push: what cannot be written, and what --fsync flushes.

use crate::lab::{copied, tree};
use crate::local::{assert_arrived, ours, plan, plan_in, push, pushed};
use std::fs;
use std::path::Path;
use support::{OpenFolder, Ran, executable, make_folder, noise, read, sh, write};

#[test]
fn where_nothing_may_be_written() {
    let OpenFolder(folder) = &OpenFolder::new("denied");
    plan_in(folder, &[("a", noise(1, 10))]);
    make_folder(folder, "ws");
    // as root everything may be written, so this host is another user's
    let other = "--connect 'setpriv --reuid=65534 --regid=65534 --clear-groups env'";
    if sh(
        folder,
        "setpriv --reuid=65534 --regid=65534 --clear-groups true",
    )
    .status
        != 0
    {
        support::skipped!("only root can become another user");
        return;
    }
    sh(folder, "chmod 755 ws");
    let denied = push(folder, other);
    denied.ends(1).err_has("Permission denied");
    let records = pushed(&denied.out);
    assert!(
        records.len() == 2
            && records
                .iter()
                .all(|(ok, _, error)| !ok && error.contains("Permission denied")),
        "{}",
        denied.out
    );
    // only one directory is closed: the others arrive
    sh(folder, "chmod 777 ws; mkdir ws/src; chmod 755 ws/src");
    let denied = push(folder, other);
    denied.ends(1);
    assert!(
        pushed(&denied.out).iter().filter(|(ok, ..)| *ok).count() == 1,
        "{}{}",
        denied.out,
        denied.err
    );
    sh(folder, "chmod 777 ws/src");
    push(folder, other).ends(0);
}

/// tar leaves half a file when it breaks off: that must not take the place of a whole one.
#[test]
fn slow_an_archive_that_breaks_off_replaces_nothing() {
    let folder = plan(&[
        ("a", noise(1, 100_000)),
        ("b", noise(2, 3 << 20)),
        ("c", noise(3, 1000)),
    ]);
    write(&folder, "ws/src/b", "what was there");
    // no file may become larger than 1 MB, as on a disk that is full
    executable(&folder, "full", "#!/bin/sh\nulimit -f 2000\nexec \"$@\"\n");
    // host-agent itself is larger: the host has it already
    push(&folder, "--dry-run --connect 'env A=b'").ends(0);
    let full = push(&folder, "--connect './full env'");
    full.ends(1);
    let report = pushed(&full.out);
    assert!(
        report
            .iter()
            .any(|(ok, _, why)| !ok && why.contains("limit")),
        "{report:?}"
    );
    assert_eq!(read(&folder, "ws/src/b"), "what was there");
    assert!(
        ours(&folder.join("ws"))
            .iter()
            .all(|name| name == ".part-push.kept"),
        "{:?}",
        ours(&folder.join("ws"))
    );
    // a tar that is killed; the files come one by one
    executable(
        &folder,
        "bin/tar",
        "#!/bin/sh\nhead -c 2000000 | /bin/tar \"$@\"\ncat >/dev/null\nexit 137\n",
    );
    let _ = fs::remove_dir_all(folder.join("ws"));
    for options in ["", "--verify"] {
        let ran = push(
            &folder,
            &format!("--connect \"env PATH=$PWD/bin:$PATH\" {options}"),
        );
        ran.ends(0);
        assert!(pushed(&ran.out).len() == 4, "{}{}", ran.out, ran.err);
        assert_arrived(&folder);
        let _ = fs::remove_dir_all(folder.join("ws"));
    }
}

/// The disk is large enough for the file, but not for all of it beside what is kept. One piece of
/// what is kept differs, so the second push writes parts in any order. ext4 has no room for a new
/// directory then, as tmpfs has: where that of kept parts is missing, the part stays where it is.
#[test]
fn slow_what_has_arrived_before_a_disk_became_full_need_not_be_sent_again() {
    const LARGE: u64 = 40 << 20;
    let folder = plan(&[("large", noise(1, LARGE as usize))]);
    let script = r#"PATH=$PATH:/sbin:/usr/sbin count=0
        mkdir ws && truncate -s 64M image && mkfs.ext4 -q -m 0 image &&
            mount -o loop image ws && rmdir ws/lost+found || exit 99
        export DGL_TOOLS_CONNECT=local
        fill_during() {
            part-push --limit 8MB/s <plan.jsonl >$1 2>>err &
            for try in $(seq 1000); do
                [ "$(stat -c %b ws/.part-push.*/part.* 2>&- || echo 0)" -ge $2 ] && break
                sleep 0.02
            done
            kill -STOP $!
            $3
            # the last blocks are for directories only
            mkdir ws/filler && cat /dev/zero >ws/filler/zeros 2>&-
            while mkdir ws/filler/$((count += 1)) 2>&-; do :; done
            kill -CONT $!
            wait $!
            echo $?
            ls -A ws | sed 's/[0-9a-f]*\.0$/RUN.0/'
        }
        fill_during first 20000
        rm -r ws/filler
        printf x | dd of="$(ls ws/.part-push.kept/*)" bs=1 seek=1000 conv=notrunc 2>&-
        fill_during second 30000 'rm -r ws/.part-push.kept'
        part-push <plan.jsonl >still-full 2>&1
        echo $?
        rm -r ws/filler
        part-push <plan.jsonl >third && cmp src/large ws/src/large && ls -A ws && cat err >&2"#;
    write(&folder, "script", script);
    // without root there is no right to mount
    let ran = sh(
        &folder,
        "unshare -m true && unshare -m sh script || exit $?",
    );
    if ran.status == 99 || ran.err.contains("unshare failed") {
        return support::skipped!("no right to mount an image of ext4");
    }
    ran.ends(0);
    let expected = "1\n.part-push.kept\nfiller\nip_config.txt\n\
        1\n.part-push.RUN.0\nfiller\nip_config.txt\n1\nip_config.txt\nsrc\n";
    assert_eq!(ran.out, expected, "{}", ran.err);
    let message = "ws/src/large: No space left on device";
    assert_eq!(ran.err.matches(message).count(), 2, "{}", ran.err);
    let sent = |records| {
        let records = copied(&read(&folder, records)).into_iter();
        let mut large = records.filter(|record| record.bytes == LARGE);
        large.next().unwrap().moved
    };
    assert!(sent("second") < LARGE - 8_000_000, "{}", sent("second"));
    assert!(sent("third") < LARGE - 14_000_000, "{}", sent("third"));
}

#[test]
fn slow_fsync_flushes_every_file_and_folder() {
    let folder = plan(&[("small", noise(1, 10)), ("large", noise(2, 17 << 20))]);
    if sh(&folder, "strace -o /dev/null true").status != 0 {
        support::skipped!("no strace here");
        return;
    }
    let run = |options: &str| {
        let _ = fs::remove_dir_all(folder.join("ws"));
        sh(
            &folder,
            &format!(
                "strace -f -y -e trace=fsync,/^rename -o trace part-push --connect local {options} \
                 <plan.jsonl"
            ),
        )
        .ends(0);
        let trace = read(&folder, "trace");
        trace
            .lines()
            .filter(|line| line.contains("fsync(") || line.contains("rename"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(!run("").iter().any(|line| line.contains("fsync(")));
    let synced = run("--fsync");
    let at = |what: &str| {
        synced
            .iter()
            .position(|line| line.contains(what))
            .unwrap_or_else(|| panic!("no {what} in {synced:#?}"))
    };
    let ws = folder.join("ws").display().to_string();
    // each file before it gets its name, its directory after that
    assert!(
        at("/one>)") < at("/ws/src>, \"small\"") && at("/part.") < at("/ws/src>, \"large\""),
        "{synced:#?}"
    );
    assert_eq!(
        synced
            .iter()
            .filter(|line| line.contains("fsync(") && line.contains(&format!("<{ws}/src>)")))
            .count(),
        2,
        "{synced:#?}"
    );
}

/// Whoever reads the records later must not take those that are there for all. A reader that goes
/// away has seen what it needs.
#[test]
fn slow_results_that_cannot_be_written_make_the_status_of_every_tool_that_acts() {
    let folder = plan(&[("a", noise(1, 1000))]);
    sh(
        &folder,
        "ipconf-check ip.txt >hosts.jsonl; mkdir ws; echo b >ws/b",
    );
    let tools = [
        "part-push <plan.jsonl",
        "part-push --format human --dry-run --host 0 <plan.jsonl",
        "part-pull --workspace \"$PWD/ws\" --to got b <hosts.jsonl",
        "part-pull --dry-run --workspace \"$PWD/ws\" --to other b <hosts.jsonl",
        "host-probe <hosts.jsonl",
        "dgl-reap --list <hosts.jsonl",
    ];
    for tool in tools {
        let run = |to: &str| {
            let script =
                format!("export DGL_TOOLS_CONNECT=local; {{ {tool}; echo $? >status; }} {to}");
            let ran = sh(&folder, &script);
            let status = read(&folder, "status");
            (status.trim().to_owned(), ran.err)
        };
        let (usual, _) = run(">/dev/null");
        let (full, words) = run(">/dev/full");
        assert_eq!(full, "74", "{tool}: {words}");
        assert!(
            words.contains(": stdout: not all of it could be written"),
            "{tool}: {words}"
        );
        let (closed, words) = run("| true");
        assert_eq!(closed, usual, "{tool}: {words}");
    }
}

/// A directory in which users may make others, but not list them.
#[test]
fn fsync_needs_no_right_to_read_the_directory_above_the_workspace() {
    let OpenFolder(folder) = &OpenFolder::new("fsync");
    plan_in(
        folder,
        &[("small", noise(1, 10)), ("large", noise(2, 2 << 20))],
    );
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups env";
    if sh(folder, &format!("{other} true")).status != 0 {
        return support::skipped!("no right to act as another user");
    }
    make_folder(folder, "above");
    let above = "chmod 1733 above; sed \"s,$PWD/ws,$PWD/above/new/ws,g\" <plan.jsonl >other
        mv other plan.jsonl";
    sh(folder, above).ends(0);
    push(folder, &format!("--fsync --connect '{other}'")).ends(0);
    assert!(tree(&folder.join("src")) == tree(&folder.join("above/new/ws/src")));
}

/// Stands in for a network file system with a quota: close(2) reports that files whose paths have
/// the text `$LOST` in them were not stored.
const CLOSE_FAILS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int close(int fd) {
    char link[40], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int is_named = readlink(link, path, sizeof path - 1) > 0;
    int is_written = (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
    int result = syscall(SYS_close, fd);
    if (is_named && is_written && strstr(path, getenv("LOST"))) {
        errno = EDQUOT;
        return -1;
    }
    return result;
}
"#;

/// The variables with which close(2) fails; `None` without a C compiler.
fn close_fails(folder: &Path, lost: &str) -> Option<String> {
    write(folder, "close.c", CLOSE_FAILS);
    if sh(folder, "cc -shared -fPIC -o close.so close.c").status != 0 {
        support::skipped!("no C compiler here");
        return None;
    }
    let library = folder.join("close.so");
    Some(format!("LD_PRELOAD={} LOST={lost}", library.display()))
}

#[test]
fn records_that_are_not_stored_when_stdout_is_closed_fail_their_tool() {
    let folder = plan(&[("a", noise(1, 10))]);
    let Some(fails) = close_fails(&folder, "/records") else {
        return;
    };
    for tool in [
        "ipconf-check ip.txt",
        "part-push --dry-run --connect local <plan.jsonl",
    ] {
        let ran = sh(&folder, &format!("{fails} {tool} >records"));
        ran.ends(74).err_has("stdout: Disk quota exceeded");
        sh(&folder, &format!("{tool} >records")).ends(0);
    }
}

#[test]
fn a_file_that_is_not_stored_when_it_is_closed_has_not_arrived() {
    let folder = plan(&[("small", noise(1, 1000)), ("large", noise(2, 3 << 20))]);
    let Some(fails) = close_fails(&folder, "/.part-") else {
        return;
    };
    let push = |variables: &str| {
        sh(
            &folder,
            &format!("part-push --connect 'env {variables}' <plan.jsonl"),
        )
    };
    let pull = |variables: &str| {
        sh(
            &folder,
            &format!(
                "ipconf-check ip.txt | {variables} part-pull --connect local --workspace \
                 \"$PWD/ws\" --to got src"
            ),
        )
    };
    let is_lost = |ran: &Ran, files: usize| {
        ran.ends(1).err_has("Disk quota exceeded");
        let records = copied(&ran.out);
        let lost = records
            .iter()
            .filter(|record| !record.ok && record.error.contains("Disk quota exceeded"));
        assert_eq!(lost.count(), files, "{}", ran.out);
    };
    // with the ip_config
    is_lost(&push(&fails), 3);
    assert!(tree(&folder.join("ws")).is_empty());
    push("").ends(0);
    assert_arrived(&folder);

    is_lost(&pull(&fails), 2);
    assert!(tree(&folder.join("got")).is_empty());
    pull("").ends(0);
    assert!(tree(&folder.join("got/src")) == tree(&folder.join("src")));
}
