//! part-push: what it puts where, and what happens when it is disturbed.

use crate::lab::{Lab, copied, of_size, tree};
use std::ffi::OsString;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};
use support::{
    Cluster, OpenFolder, Ran, executable, make_folder, noise, only_root_can, path, ran, read,
    scratch, sh, shells, soon, write,
};

/// A directory with `src/`, and a plan that brings it to `ws/src/` on this machine.
fn plan(files: &[(&str, Vec<u8>)]) -> PathBuf {
    let folder = scratch();
    plan_in(&folder, files);
    folder
}

fn plan_in(folder: &Path, files: &[(&str, Vec<u8>)]) {
    make_folder(folder, "src");
    for (file, content) in files {
        fs::write(folder.join("src").join(file), content).unwrap();
    }
    write(folder, "ip.txt", "127.0.0.1\n");
    map(folder);
}

fn map(folder: &Path) {
    sh(
        folder,
        "ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra src >plan.jsonl",
    )
    .ends(0);
}

fn push(folder: &Path, options: &str) -> Ran {
    sh(
        folder,
        &format!("DGL_TOOLS_CONNECT=local part-push {options} <plan.jsonl"),
    )
}

/// What the records say of each delivery: ok, bytes sent, error.
fn pushed(out: &str) -> Vec<(bool, u64, String)> {
    let records = copied(out).into_iter();
    records
        .map(|record| (record.ok, record.moved, record.error))
        .collect()
}

/// All that was to be pushed is there, and nothing else.
#[track_caller]
fn assert_arrived(folder: &Path) {
    let (ours, theirs) = (folder.join("src"), folder.join("ws/src"));
    assert!(tree(&ours) == tree(&theirs), "other files arrived");
}

/// A directory of links to busybox in the place of every tool of a host, but for those named.
fn busybox(folder: &Path, without: &[&str]) -> String {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    sh(folder, "busybox --install -s bin").ends(0);
    without
        .iter()
        .for_each(|tool| fs::remove_file(bin.join(tool)).unwrap());
    format!("--connect 'env PATH={}'", bin.display())
}

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
fn a_path_cannot_leave_the_workspace() {
    let folder = plan(&[("a", b"new".to_vec()), ("b", b"new".to_vec())]);
    let (ws, outside) = (folder.join("ws"), folder.join("outside"));
    fs::create_dir_all(&ws).unwrap();
    fs::create_dir_all(&outside).unwrap();
    symlink(&outside, ws.join("src")).unwrap();
    push(&folder, "").ends(1).err_has("leads out of");
    assert!(tree(&outside).is_empty());
    assert!(ws.join("ip_config.txt").exists(), "the others arrive");

    // a link that stays inside is followed, one in the place of a file is replaced, a directory in
    // its place stays
    fs::remove_file(ws.join("src")).unwrap();
    make_folder(&ws, "real/b");
    symlink("real", ws.join("src")).unwrap();
    symlink(&outside, ws.join("real/a")).unwrap();
    push(&folder, "").ends(1).err_has("directory");
    assert!(
        fs::read(ws.join("real/a")).unwrap() == b"new"
            && tree(&outside).is_empty()
            && ws.join("real/b").is_dir()
    );

    // where not even root can write
    for dst in ["/proc/x", "ws/../../x", "x"] {
        let bad = sh(
            &folder,
            &format!(
                "jq -c 'if .type == \"file\" then .dst = \"{dst}\" elif .type == \"workspace\" \
                 then empty else . end' plan.jsonl | part-push --connect local"
            ),
        );
        assert_eq!(
            bad.status,
            if dst == "/proc/x" { 1 } else { 65 },
            "{dst}: {}",
            bad.err
        );
        let graph = concat!(
            r#"{"type":"graph","graph_name":"g","num_parts":1,"files":1,"#,
            r#""workspace":"/w","part_config":"g.json","ip_config":"i"}"#
        );
        sh(
            &folder,
            &format!(
                "(echo '{graph}'; jq -c 'if .type == \"file\" then .dst = \"{dst}\" else . end' \
                 plan.jsonl) | part-push --connect local"
            ),
        )
        .ends(65);
    }
}

/// A workspace in which everybody can write, and what another user has put there before a push.
#[test]
fn slow_what_another_user_puts_into_a_workspace_leads_nowhere() {
    if only_root_can("act as another user") {
        return;
    }
    const OF_OTHER: &str = "is reached by a symbolic link that belongs to another user";
    // of a push that is dead, as it seems
    let old = "touch -h -d '2001-01-01' .part-push.evil.1";
    let table = [
        // old files in a directory of the user's are not taken for parts that were kept
        ("ln -s ../home .part-push.kept", 0, ""),
        // nor a directory of the user's itself, or for a stage
        ("mv results .part-push.kept", 0, ""),
        ("mv results .part-push.evil.1", 0, ""),
        // and files there are not moved as parts of a stage
        (&format!("ln -s ../home .part-push.evil.1; {old}"), 0, ""),
        (
            &format!(
                "mkdir .part-push.evil.1; ln -s ../../home/part.1 .part-push.evil.1/owner; {old}"
            ),
            0,
            "",
        ),
        (
            &format!("mkdir .part-push.evil.1; mkfifo .part-push.evil.1/owner; {old}"),
            0,
            "",
        ),
        // what seems to be kept stays the other user's
        (
            "mkdir -m 777 .part-push.kept; cp ../src/large \
             .part-push.kept/0123456789abcdef.0123456789abcdef; touch -d 2001-01-01 \
             .part-push.kept/*",
            0,
            "",
        ),
        // its destination
        ("mkdir -m 777 src; mkfifo -m 666 src/large src/small", 0, ""),
        ("ln -s ../home src", 1, OF_OTHER),
        ("mkdir -m 777 elsewhere; ln -s elsewhere src", 1, OF_OTHER),
        // a file there is not taken for the one that was to come, although it is the same
        ("ln -s ../src src", 1, OF_OTHER),
    ];
    for (lays, status, message) in table {
        let folder = plan(&[("large", noise(1, 3 << 20)), ("small", noise(2, 9))]);
        sh(
            &folder,
            "mkdir -m 777 ws; mkdir -m 700 home ws/results; head -c 2M src/large >home/part.1; \
             for name in part.1 owner model.pt; do echo mine >ws/results/$name; done; \
             touch -d 2001-01-01 home/part.1 home ws/results/* ws/results",
        )
        .ends(0);
        let results = "grep -rslx mine ws | wc -l";
        let home = tree(&folder.join("home"));
        write(&folder, "lays", lays);
        let laid = sh(
            &folder,
            "cd ws && setpriv --reuid 65534 --regid 65534 --clear-groups sh -e ../lays",
        );
        assert_eq!(laid.status, 0, "{lays}: {}", laid.err);
        let theirs = "find ws -user 65534 ! -type p ! -type d | sort";
        let before = sh(&folder, theirs).out;

        let ran = sh(
            &folder,
            "DGL_TOOLS_CONNECT=local timeout 30 part-push <plan.jsonl",
        );
        assert_eq!(ran.status, status, "{lays}: {}", ran.err);
        assert!(ran.err.contains(message), "{lays}: {}", ran.err);
        let warning = format!("other users can write to {}", folder.join("ws").display());
        assert!(ran.err.contains(&warning), "{lays}: {}", ran.err);
        assert_eq!(tree(&folder.join("home")), home, "{lays}");
        assert_eq!(sh(&folder, theirs).out, before, "{lays}");
        assert_eq!(sh(&folder, results).out, "3\n", "{lays}");
        if status == 0 {
            let (ours, there) = (folder.join("src"), folder.join("ws/src"));
            assert_eq!(tree(&ours), tree(&there), "{lays}");
        }
        let left = "cd ws; ls -d elsewhere/* .part-push.lock .part-push.[0-9a-d]* 2>/dev/null";
        assert_eq!(sh(&folder, left).out, "", "{lays}");
    }
}

/// The directories that commands name are reached as everything below them is.
#[test]
fn a_link_of_another_user_is_no_workspace_and_no_place_for_what_is_brought() {
    if only_root_can("act as another user") {
        return;
    }
    let folder = plan(&[("one", noise(1, 9))]);
    push(&folder, "").ends(0);
    let script = "mkdir -m 777 shared; mkdir -m 700 home; cd shared
        setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../home ws
        setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../home to; cd ..
        sed 's|/ws|/shared/ws|g' plan.jsonl >led.jsonl; export DGL_TOOLS_CONNECT=local
        part-push <led.jsonl >pushed; echo $?
        part-pull --workspace \"$PWD/shared/ws\" --to . one <plan.jsonl >pulled; echo $?
        part-pull --workspace \"$PWD/ws\" --to shared/to '*' <plan.jsonl >pulled; echo $?
        ls -A home";
    let ran = sh(&folder, script);
    assert_eq!(ran.out, "1\n74\n1\n", "{}", ran.err);
    let refusals = ran
        .err
        .matches("is reached by a symbolic link that belongs to another user");
    assert_eq!(refusals.count(), 3, "{}", ran.err);
}

/// Links of the user's own lead to the workspace, and from one of its directories to another.
#[test]
fn links_of_the_users_own_are_followed() {
    let folder = plan(&[("a", noise(1, 3 << 20)), ("b", noise(2, 9))]);
    sh(
        &folder,
        "mkdir -p disk/real; ln -s disk ws; ln -s \"$PWD/ws/real\" disk/src",
    )
    .ends(0);
    push(&folder, "").ends(0).err_lacks("other users");
    assert_eq!(tree(&folder.join("src")), tree(&folder.join("disk/real")));
    // what is there already may lie behind a link that leads out of the workspace
    sh(
        &folder,
        "rm disk/src; mv disk/real .; ln -s ../real disk/src",
    )
    .ends(0);
    for options in ["", "--verify"] {
        push(&folder, options).ends(0).err_has("3 there already");
    }
}

#[test]
fn new_directories_have_what_the_umask_of_the_login_allows() {
    for (mask, mode) in [("002", 0o775), ("027", 0o750), ("077", 0o700)] {
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
fn slow_sizes_times_and_modes_and_what_was_there() {
    let folder = plan(&[
        ("empty", vec![]),
        ("one", noise(1, 1)),
        ("block", noise(2, 512)),
        ("large", noise(3, 17 << 20)),
    ]);
    sh(
        &folder,
        "chmod 750 src/one; touch -d '2001-02-03 04:05:06.123456789' src/large",
    );
    map(&folder);
    push(&folder, "--dry-run")
        .ends(0)
        .out_has("5 files to send, 18 MB");
    assert!(!folder.join("ws").exists());
    assert_eq!(push(&folder, "--progress never").err, "");
    let (ours, theirs) = (folder.join("src"), folder.join("ws/src"));
    // before it is read
    let large = fs::metadata(theirs.join("large")).unwrap();
    assert!(large.atime() > large.mtime(), "it looks unused for years");
    assert_eq!(tree(&ours), tree(&theirs));
    for name in ["empty", "one", "block", "large"] {
        let about = |folder: &Path| {
            fs::metadata(folder.join(name))
                .map(|meta| (meta.mode(), meta.mtime(), meta.mtime_nsec()))
                .unwrap()
        };
        assert_eq!(about(&ours), about(&theirs), "{name}");
    }
    // same size and time, another content: only a checksum tells
    sh(
        &folder,
        "printf x | dd of=ws/src/large conv=notrunc bs=1 seek=9 2>/dev/null; touch -r src/large \
         ws/src/large",
    );
    push(&folder, "").err_has("0 files, 0 B; 5 there already");
    push(&folder, "--verify")
        .ends(0)
        .err_has("1 file, 18 MB; 4 there already");
    assert_eq!(tree(&ours), tree(&theirs));

    // a source that changed is an error for that file, and what stood there stays
    write(&ours, "one", "changed");
    fs::remove_file(ours.join("block")).unwrap();
    fs::remove_dir_all(folder.join("ws/src")).unwrap();
    make_folder(&folder, "ws/src");
    write(&theirs, "one", "as it was");
    let changed = push(&folder, "");
    let faults: Vec<_> = pushed(&changed.out)
        .into_iter()
        .filter(|(ok, ..)| !ok)
        .map(|(.., error)| error)
        .collect();
    changed.ends(1);
    assert!(faults.len() == 2);
    assert!(
        faults[0].contains("No such file") && faults[1].contains("changed since"),
        "{faults:?}"
    );
    assert_eq!(fs::read(theirs.join("one")).unwrap(), b"as it was");
    assert!(theirs.join("large").exists() && !theirs.join("block").exists());
}

#[test]
fn slow_the_script_runs_in_every_shell_of_a_host() {
    let folder = plan(&[
        ("large", noise(1, 17 << 20)),
        ("small", noise(2, 100)),
        ("it's\none", b"x".repeat(3 << 20)),
    ]);
    make_folder(&folder, "bin");
    for shell in shells().map(|shell| shell.trim_end_matches(" sh")) {
        sh(&folder, &format!("ln -sf \"$(command -v {shell})\" bin/sh")).ends(0);
        let connect = format!("--connect \"env PATH={}/bin:$PATH\"", folder.display());
        for options in ["", "--compress always --verify"] {
            let _ = fs::remove_dir_all(folder.join("ws"));
            for sent in [4, 0] {
                let ran = push(&folder, &format!("{connect} {options}"));
                ran.ends(0);
                let count = pushed(&ran.out)
                    .iter()
                    .filter(|(_, bytes, _)| *bytes > 0)
                    .count();
                assert_eq!(
                    (count, ran.err.contains("; 4 there already")),
                    (sent, sent == 0),
                    "{shell} {options}: {}",
                    ran.err
                );
            }
            assert!(
                tree(&folder.join("ws/src")) == tree(&folder.join("src"))
                    && ours(&folder.join("ws")).is_empty(),
                "{shell} {options}"
            );
        }
    }
}

/// What is asked of a host stands on lines that can be typed by hand; a file of more than 2^32
/// bytes.
#[test]
fn offsets_beyond_32_bits() {
    let folder = scratch();
    let ws = folder.join("ws").display().to_string();
    let key = "0123456789abcdef.0123456789abcdef";
    let steps = [
        format!(r#"{{"do":"file","step":"receive","base":"{ws}","run":"r","host":0}}"#),
        format!(
            "{{\"do\":\"file\",\"step\":\"open\",\"id\":3,\"dst\":\"{ws}/far\",\
             \"size\":5242880005,\"mode\":420,\"key\":\"{key}\",\"keep\":[[65536,131072]]}}"
        ),
        // the sum of `hello`
        concat!(
            r#"{"do":"file","step":"write","id":3,"offset":5242880000,"length":5,"#,
            r#""sum":"b5e9c1ad071b3e7fc779cfaa5e523818""#,
            r#","bytes":5}"#
        )
        .to_owned(),
        concat!(
            r#"hello{"do":"file","step":"write","id":3,"offset":5242880001,"length":5,"#,
            r#""sum":"b5e9c1ad071b3e7fc779cfaa5e523818""#,
            r#","bytes":5}"#
        )
        .to_owned(),
        r#"hello{"do":"file","step":"sync","number":9}"#.to_owned(),
    ];
    write(&folder, "steps", steps.join("\n") + "\n");
    let ran = sh(
        &folder,
        &format!(
            "mkfifo in; host-agent <in >out & exec 3>in; cat steps >&3
        until grep -q synced out; do sleep 0.1; done
        stat -c %s ws/.part-push.r.0/part.{key}; tail -c 6 ws/.part-push.r.0/part.{key} | od -An \
            -c; exec 3>&-; wait $!; cat out"
        ),
    );
    ran.out_has("5242880005\n  \\0   h   e   l   l   o\n");
    // what lies behind the end of the file is refused, and what came before stays
    ran.out_has(r#""failed":[[3,"out_of_order"]]"#)
        .out_has(r#""kind":"synced","number":9"#);
    assert!(
        ours(&folder.join("ws")).is_empty(),
        "what is not worth keeping goes with the agent"
    );
}

#[test]
fn slow_only_what_differs_is_sent() {
    const CHANGED: usize = 64 << 10;
    let folder = plan(&[("large", noise(1, 20 << 20))]);
    push(&folder, "").ends(0);
    let (source, there) = (folder.join("src/large"), folder.join("ws/src/large"));
    let sent = |options: &str| {
        let ran = push(&folder, options);
        ran.ends(0);
        assert!(
            fs::read(&source).unwrap() == fs::read(&there).unwrap(),
            "{options}"
        );
        assert!(ours(&folder.join("ws")).is_empty());
        pushed(&ran.out)
            .iter()
            .map(|(_, sent, _)| sent)
            .max()
            .copied()
            .unwrap()
    };
    let change = |at: usize| {
        let mut content = fs::read(&source).unwrap();
        content[at..at + CHANGED].copy_from_slice(&noise(9, CHANGED));
        fs::write(&source, content).unwrap();
        map(&folder);
    };
    // within one piece, and over the border of two
    change(7 << 20);
    assert_eq!(sent(""), CHANGED as u64);
    change((3 << 20) + 1000);
    assert_eq!(sent(""), 2 * CHANGED as u64);
    // it becomes longer, and shorter
    let mut content = fs::read(&source).unwrap();
    content.extend(noise(3, CHANGED));
    fs::write(&source, &content).unwrap();
    map(&folder);
    assert_eq!(sent(""), CHANGED as u64);
    fs::write(&source, &content[..10 << 20]).unwrap();
    map(&folder);
    assert_eq!(sent(""), 0);
    // what is there is another file of the same time
    let time = "touch -r src/large ws/src/large";
    let flip = "printf x | dd of=ws/src/large conv=notrunc bs=1 seek=5000000 2>/dev/null";
    sh(&folder, &format!("{flip}; {time}"));
    assert_eq!(sent("--verify"), CHANGED as u64);
    assert_eq!(sent("--verify"), 0);
    // only its time is another one
    sh(&folder, "touch src/large");
    map(&folder);
    assert_eq!(sent(""), 0);
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

/// What was reserved for the rest of it would be missing when that is to come.
#[test]
fn slow_what_is_kept_of_an_interrupted_push_takes_no_more_room_than_it_has() {
    let folder = plan(&[("large", noise(1, 40 << 20))]);
    let script = r#"mkdir ws && mount -t tmpfs -o size=60m none ws || exit 99
        export DGL_TOOLS_CONNECT=local
        part-push --limit 8MB/s <plan.jsonl >first 2>&1 &
        for try in $(seq 1000); do
            [ "$(stat -c %s ws/.part-push.*/part.* 2>/dev/null || echo 0)" -ge 4000000 ] && break
            sleep 0.02
        done
        kill -TERM $!
        wait $!
        for try in $(seq 500); do ls -d ws/.part-push.*.* >/dev/null 2>&1 || break; sleep 0.02; done
        stat -c '%b %s' ws/.part-push.kept/*
        part-push <plan.jsonl >second && cmp src/large ws/src/large"#;
    write(&folder, "script", script);
    // without root there is no right to mount
    let ran = sh(
        &folder,
        "unshare -m true && unshare -m sh script || exit $?",
    );
    if ran.status == 99 || ran.err.contains("unshare failed") {
        return println!("skipped: no right to mount");
    }
    ran.ends(0);
    let kept: Vec<u64> = ran
        .out
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert!(
        kept[0] * 512 < kept[1] + (1 << 20) && kept[1] >= 4_000_000,
        "{kept:?}"
    );
}

/// A record's content may be as large as a record; hosts that share a directory find it there.
#[test]
fn large_content_of_a_record_is_there_for_all_hosts_and_is_not_sent_again() {
    let folder = scratch();
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.2\n");
    let content = "0123456789abcde\n".repeat(2 << 16);
    let bytes = content.len();
    let ws = folder.join("ws");
    let record = serde_json::json!({
        "type": "file", "id": 0, "of": 1, "kind": "extra", "content": content, "bytes": bytes,
        "dst": ws.join("made"), "mode": 0o644,
    });
    write(&folder, "record", format!("{record}\n"));
    let map = "ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra ip.txt | \
               grep -v '\"type\":\"file\"' >plan.jsonl; cat record >>plan.jsonl";
    sh(&folder, map).ends(0);
    for sends in [true, false] {
        let ran = push(&folder, "--wire ssh");
        ran.ends(0)
            .err_has("host 1 (10.77.0.2): 0 files, 0 B; 1 there already");
        let sent: u64 = pushed(&ran.out).iter().map(|(_, sent, _)| sent).sum();
        assert_eq!(sent > 0, sends, "{}", ran.out.len());
        assert_eq!(read(&ws, "made"), content);
    }
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

/// An NFS client shows some time later what another host has written. Here the second host sees an
/// empty directory until somebody takes away what is mounted over it there.
#[test]
fn slow_a_host_that_shows_late_what_another_one_put_on_shared_storage_has_it() {
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
    if sh(&folder, "unshare -m mount -t tmpfs none ws/src").status != 0 {
        return println!("skipped: no right to mount");
    }
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| push(&folder, "--wire ssh --connect './own {id} env'"));
        sh(
            &folder,
            "for try in $(seq 500); do [ -e ws/src/a ] && break; sleep 0.1; done; touch there",
        );
        ran.join().unwrap()
    });
    ran.ends(0);
    let took = ran.out.matches("\"skipped\":true").count();
    assert!(took > 0, "{}", ran.out);
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

/// Nothing is left to send of a file: an empty one that goes alone, for its name, and one that
/// arrived whole before.
#[test]
fn nothing_to_compress() {
    let folder = plan(&[(&"n".repeat(100), Vec::new())]);
    push(&folder, "--compress always").ends(0);
    assert_arrived(&folder);
}

/// A host that is done long before another is none that says nothing.
#[test]
fn slow_a_host_waits_for_a_slow_one() {
    let folder = plan(&[("slow", noise(1, 1_200_000)), ("quick", noise(2, 10))]);
    let two = "if .type == \"host\" then (.of = 2, (.of = 2 | .id = 1 | .ip = \"127.0.0.2\"))
        elif (.src // \"\" | endswith(\"slow\")) then .host = 0 elif (.src // \"\" | \
            endswith(\"quick\")) then .host = 1 else . end";
    sh(
        &folder,
        &format!("jq -c '{two}' plan.jsonl >two.jsonl && mv two.jsonl plan.jsonl"),
    )
    .ends(0);
    // 64 KiB a second
    let slow = "import os, time\nwhile data := os.read(0, 65536):\n    os.write(1, data)\n    \
        time.sleep(len(data) / 65536)\n";
    write(&folder, "slow.py", slow);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nid=$1\nshift\n[ \"$id\" = 1 ] || { python3 slow.py | \"$@\"; exit; }\nexec \
         \"$@\"\n",
    );
    // it has the agent already
    push(&folder, "--dry-run --connect 'env A=b'").ends(0);
    let begun = Instant::now();
    let slow = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--connect './way {id} env' --compress never",
    );
    let ran = ran(slow.wait_with_output().unwrap());
    assert!(
        begun.elapsed() > Duration::from_secs(15),
        "it was not slow enough to show anything"
    );
    ran.ends(0);
    assert_arrived(&folder);
}

#[test]
fn what_else_is_there_stays() {
    let folder = plan(&[]);
    for file in ["new/a", "new/deep/a", "old/a", "old/deep/new/a"] {
        let file = folder.join("src").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "ours").unwrap();
    }
    let ws = folder.join("ws/src");
    write(&ws, "old/deep/mine", "theirs");
    write(&ws, "old/a", "theirs");
    map(&folder);
    push(&folder, "").ends(0);
    let mut expected = tree(&folder.join("src"));
    expected.insert("old/deep/mine".into(), b"theirs".to_vec());
    assert_eq!(tree(&ws), expected);
    let mode = |folder: &str| fs::metadata(ws.join(folder)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("new"), mode("new/deep"), mode("old/deep/new")),
        (0o755, 0o755, 0o755)
    );
    assert!(ours(&folder.join("ws")).is_empty());
}

#[test]
fn slow_fsync_flushes_every_file_and_folder() {
    let folder = plan(&[("small", noise(1, 10)), ("large", noise(2, 17 << 20))]);
    if sh(&folder, "strace -o /dev/null true").status != 0 {
        println!("skipped: no strace here");
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

#[test]
fn slow_compressed_or_not_the_bytes_are_the_same() {
    let text = b"0 1 2 3 4 5 6 7\n".repeat(3 << 20);
    let folder = plan(&[
        ("text", text),
        ("noise", noise(5, 20 << 20)),
        ("small", b"a b c\n".repeat(2000)),
    ]);
    for (options, least, most) in [
        ("--compress always", 0, 25 << 20),
        ("--compress never", 68 << 20, 80 << 20),
    ] {
        let _ = fs::remove_dir_all(folder.join("ws"));
        let ran = push(&folder, options);
        ran.ends(0);
        assert_arrived(&folder);
        let sent: u64 = pushed(&ran.out).iter().map(|(_, sent, _)| sent).sum();
        assert!((least..most).contains(&sent), "{options}: {sent}");
    }
    let _ = fs::remove_dir_all(folder.join("ws"));
    push(
        &folder,
        &format!("--compress always {}", busybox(&folder, &[])),
    )
    .ends(0);
    assert_arrived(&folder);
}

/// Room on the disk that a file takes.
fn room(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn slow_zeros_are_not_sent_and_holes_stay_holes() {
    // zeros at the beginning, in between and at the end
    let folder = plan(&[("small", noise(2, 5000))]);
    let large = fs::File::create(folder.join("src/large")).unwrap();
    for (at, seed) in [(20 << 20, 3), ((40 << 20) + 777, 4)] {
        std::os::unix::fs::FileExt::write_all_at(&large, &noise(seed, 1 << 20), at).unwrap();
    }
    large.set_len((64 << 20) + 5).unwrap();
    drop(large);
    map(&folder);
    for options in [
        "",
        "--compress always",
        "--compress never --connect 'env A=b'",
    ] {
        let _ = fs::remove_dir_all(folder.join("ws"));
        let ran = push(&folder, options);
        ran.ends(0);
        assert_arrived(&folder);
        let sent: u64 = pushed(&ran.out).iter().map(|(_, sent, _)| sent).sum();
        assert!(sent < 5 << 20, "{options}: {sent}");
        let there = room(&folder.join("ws/src/large"));
        assert!(there < 8 << 20, "{options}: {there}");
    }
    let pull = "ipconf-check ip.txt | DGL_TOOLS_CONNECT=local part-pull --workspace $PWD/ws --to \
                back src";
    sh(&folder, pull).ends(0);
    assert!(tree(&folder.join("back/src")) == tree(&folder.join("src")));
    let here = room(&folder.join("back/src/large"));
    assert!(here < 8 << 20, "{here}");
}

/// No room is taken for what is a hole, and none is asked for.
#[test]
fn slow_a_sparse_file_larger_than_the_room_on_disk_arrives_and_comes_back() {
    let folder = plan(&[("small", noise(2, 5000))]);
    let free = sh(&folder, "echo $(($(stat -f -c '%f * %S' .)))").out;
    let length = free.trim().parse::<u64>().unwrap() + (1 << 30);
    let large = fs::File::create(folder.join("src/large")).unwrap();
    let end = noise(3, 100_000);
    std::os::unix::fs::FileExt::write_all_at(&large, &end, length - 100_000).unwrap();
    drop(large);
    map(&folder);
    push(&folder, "").ends(0);
    let pull = "ipconf-check ip.txt | DGL_TOOLS_CONNECT=local part-pull --workspace $PWD/ws --to \
                back src";
    sh(&folder, pull).ends(0);
    for location in ["ws/src/large", "back/src/large"] {
        let path = folder.join(location);
        assert!(room(&path) < 8 << 20, "{location}: {}", room(&path));
        let arrived = fs::File::open(&path).unwrap();
        assert_eq!(arrived.metadata().unwrap().len(), length, "{location}");
        let mut tail = vec![0; end.len()];
        let at = length - end.len() as u64;
        std::os::unix::fs::FileExt::read_exact_at(&arrived, &mut tail, at).unwrap();
        assert!(tail == end, "{location}: other bytes arrived");
    }
}

/// A push that goes on while the test does something; it writes its pid where its shell stands.
fn begin(folder: &Path, options: &str) -> Child {
    begin_with(folder, "", options)
}

fn begin_with(folder: &Path, variables: &str, options: &str) -> Child {
    let script =
        format!("DGL_TOOLS_CONNECT=local {variables} exec part-push {options} <plan.jsonl");
    let mut sh = support::command("sh");
    sh.args(["-c", &script])
        .current_dir(folder)
        .env("PATH", path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    sh.spawn().unwrap()
}

fn signal(push: &Child, name: &str) {
    let kill = Command::new("kill")
        .args([name, &push.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

/// What is ours in a workspace.
fn ours(ws: &Path) -> Vec<String> {
    let names = fs::read_dir(ws)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with(".part-push"))
        .collect();
    names.sort();
    names
}

#[test]
fn slow_two_pushes_into_one_workspace_do_not_mix() {
    let first = plan(&[
        ("a", noise(1, 20 << 20)),
        ("b", noise(2, 1000)),
        ("c", noise(3, 20 << 20)),
    ]);
    let second = plan(&[
        ("a", noise(4, 20 << 20)),
        ("b", noise(5, 1000)),
        ("c", noise(6, 20 << 20)),
    ]);
    let ws = first.join("ws");
    sh(
        &second,
        &format!(
            "sed -i 's,{}/ws,{},' plan.jsonl",
            second.display(),
            ws.display()
        ),
    );
    let one = begin(&first, "");
    soon("the first is at work", || {
        ours(&ws).contains(&".part-push.lock".to_owned())
    });
    let two = begin(&second, "");
    for push in [one, two] {
        ran(push.wait_with_output().unwrap()).ends(0);
    }
    assert!(
        tree(&ws.join("src")) == tree(&second.join("src")),
        "the second waits for the first, and is the last"
    );

    // one that does not end is not waited for
    let one = begin(&first, "");
    soon("the first is at work again", || {
        ours(&ws).contains(&".part-push.lock".to_owned())
    });
    signal(&one, "-STOP");
    let refused = push(&second, "");
    signal(&one, "-CONT");
    refused.ends(1).err_has("another push is at work");
    assert!(
        pushed(&refused.out).len() == 4 && pushed(&refused.out).iter().all(|(ok, ..)| !ok),
        "{}",
        refused.out
    );
    ran(one.wait_with_output().unwrap()).ends(0);
    assert!(tree(&ws.join("src")) == tree(&first.join("src")) && ours(&ws).is_empty());
}

/// On a host whose file system has no locks, a push is at work all the same, and says so.
#[test]
fn slow_where_there_are_no_locks_a_warning_names_the_cure() {
    let folder = plan(&[("a", noise(1, 1000))]);
    let traced = "strace -f -o /dev/null -e trace=flock -e inject=flock:error=ENOSYS env";
    if sh(&folder, &format!("{traced} true")).status != 0 {
        return println!("skipped: no strace here");
    }
    let ws = folder.join("ws");
    push(&folder, &format!("--connect '{traced}'"))
        .ends(0)
        .err_has(&format!(
            "other hosts do not see a lock on {}",
            ws.display()
        ))
        .err_has("Function not implemented")
        .err_has("  fix: mount that file system with locks (Lustre: -o flock;");
    assert!(tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
}

/// Leads to hosts 10.77.0.1 and so on, which are all this machine, but have workspaces of their
/// own, `ws1` and so on; what the first says goes through a filter. `false` where there is no right
/// to mount.
fn with_own_workspaces(folder: &Path, hosts: u32, filter: &str) -> bool {
    for name in (1..=hosts)
        .map(|host| host.to_string())
        .chain([String::new()])
    {
        make_folder(folder, format!("ws{name}"));
    }
    let mount = "mount --bind \"ws$0\" ws && exec \"$@\"";
    let own = format!(
        "#!/bin/sh\nhost=${{1##*.}}; shift\nin_own() {{ unshare -m sh -c '{mount}' \"$host\" \
         \"$@\"; }}\n[ \"$host\" = 1 ] || in_own \"$@\"\n[ \"$host\" != 1 ] || in_own \"$@\" | \
         {filter}\n"
    );
    executable(folder, "own", &own);
    let lines: String = (1..=hosts)
        .map(|host| format!("10.77.0.{host}\n"))
        .collect();
    write(folder, "ip.txt", lines);
    map(folder);
    sh(folder, "unshare -m mount --bind ws1 ws").status == 0
}

/// Both wait for a third: each could hold some hosts and keep out the other.
#[test]
fn slow_pushes_that_wait_for_the_same_hosts_take_turns() {
    const HOSTS: u32 = 6;
    let folder = plan(&[("a", noise(1, 1 << 20))]);
    if !with_own_workspaces(&folder, HOSTS, "cat") {
        return println!("skipped: no right to mount");
    }
    let pushes = sh(
        &folder,
        "tac ip.txt | ipconf-check - | part-map --workspace \"$PWD/ws\" --extra src >down
         part-push --limit 2MB/s --connect './own {ip} env' <plan.jsonl >third 2>&1 & third=$!
         until [ -e ws6/.part-push.lock ]; do sleep 0.05; done
         part-push --connect './own {ip} env' <plan.jsonl >one 2>&1 & one=$!
         part-push --connect './own {ip} env' <down >two 2>&1 & two=$!
         for push in $third $one $two; do wait $push; echo $?; done; cat third one two >&2",
    );
    assert_eq!(pushes.out, "0\n0\n0\n", "{}", pushes.err);
    for host in 1..=HOSTS {
        let ws = folder.join(format!("ws{host}"));
        assert!(tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
    }
}

/// It would be the one that gets the file for all.
#[test]
fn slow_a_host_that_claims_the_workspaces_of_others_harms_nobody_else() {
    let folder = plan(&[("a", noise(1, 1000))]);
    let forgery = r#"sed -u 's/\("kind":"peers","hosts":\)\[0\]/\1[0,1,2]/'"#;
    if !with_own_workspaces(&folder, 3, forgery) {
        return println!("skipped: no right to mount");
    }
    push(&folder, "--wire ssh --connect './own {ip} env'").ends(0);
    for host in 1..=3 {
        let ws = folder.join(format!("ws{host}"));
        assert!(tree(&ws.join("src")) == tree(&folder.join("src")), "{host}");
    }
}

/// A way to this machine that hands on this many bytes of what it is sent, and the rest when there
/// is a file `on`; the first connection alone.
fn slow_way(folder: &Path, bytes: u32) {
    let route = format!(
        "#!/bin/sh\necho x >>way.log\n[ $(wc -l <way.log) = 1 ] || exec \"$@\"\n\
         {{ dd bs=1000 count={} 2>&-; touch half; until [ -e on ]; do sleep 0.1; done; cat; }} | \
         \"$@\"\n",
        bytes / 1000
    );
    executable(folder, "way", &route);
    // it has the agent already
    push(folder, "--dry-run --connect 'env A=b'").ends(0);
}

/// Nobody else may read a file of mode 0600 while it is on its way, nor what is kept of it.
#[test]
fn slow_what_is_secret_is_secret_on_its_way() {
    let folder = plan(&[("secret", noise(1, 20 << 20))]);
    sh(&folder, "chmod 600 src/secret");
    map(&folder);
    slow_way(&folder, 9 << 20);
    let mut one = begin(&folder, "--connect './way env'");
    soon("half of it is there", || folder.join("half").exists());
    let modes = || {
        let found = sh(
            &folder,
            "find ws -mindepth 1 ! -type l ! -name ip_config.txt ! -path \
            ws/src -printf '%m %y %f\\n'",
        )
        .out;
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    soon("a part of it is there", || {
        modes().iter().any(|line| line.contains("part."))
    });
    for line in modes() {
        let open = u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap() & 0o077;
        assert_eq!(open, 0, "{line}");
    }
    let stage = ours(&folder.join("ws"))
        .into_iter()
        .find(|name| name.contains(".0"))
        .unwrap();
    assert_eq!(
        fs::metadata(folder.join("ws").join(&stage)).unwrap().mode() & 0o777,
        0o700
    );
    one.kill().unwrap();
    one.wait().unwrap();
    write(&folder, "on", "");
    soon("it has gone", || {
        ours(&folder.join("ws")) == [".part-push.kept"]
    });
    for line in modes() {
        let open = u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap() & 0o077;
        assert_eq!(open, 0, "{line}");
    }
    let again = push(&folder, "");
    let there = fs::metadata(folder.join("ws/src/secret")).unwrap();
    again.ends(0);
    assert!(there.mode() & 0o777 == 0o600);
}

/// As after a laptop's lid was closed: what was delivered stays delivered, and the rest is sent the
/// next time.
#[test]
fn slow_a_push_that_was_stopped_for_long_has_lost_its_hosts() {
    let folder = plan(&[("slow", noise(1, 40 << 20)), ("quick", noise(2, 10))]);
    let two = "if .type == \"host\" then (.of = 2, (.of = 2 | .id = 1 | .ip = \"127.0.0.2\"))
        elif .kind == \"ip_config\" or (.src // \"\" | endswith(\"slow\")) then .host = 0 elif \
            (.src // \"\" | endswith(\"quick\")) then .host = 1 else . end";
    sh(
        &folder,
        &format!("jq -c '{two}' plan.jsonl >two.jsonl && mv two.jsonl plan.jsonl"),
    )
    .ends(0);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nid=$1\nshift\n[ \"$id\" = 0 ] || exec \"$@\"\n\
         { dd bs=1000 count=20000 2>&-; touch half; until [ -e on ]; do sleep 0.1; done; cat; } | \
         \"$@\"\n",
    );
    push(&folder, "--dry-run --connect 'env A=b'").ends(0);
    let one = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--connect './way {id} env'",
    );
    soon("half of it is there", || {
        folder.join("half").exists() && folder.join("ws/src/quick").exists()
    });
    signal(&one, "-STOP");
    std::thread::sleep(Duration::from_secs(14));
    soon("the hosts have given it up", || {
        ours(&folder.join("ws")) == [".part-push.kept"]
    });
    signal(&one, "-CONT");
    write(&folder, "on", "");
    let ended = ran(one.wait_with_output().unwrap());
    let records = pushed(&ended.out);
    ended.ends(74);
    assert!(records.iter().filter(|(ok, ..)| !ok).count() == 1);
    ended
        .err_has("host 0 (127.0.0.1): connection lost")
        .err_lacks("correct the workspace")
        .err_lacks("host 1 (127.0.0.2): connection lost");
    let again = push(&folder, "");
    let sent: u64 = pushed(&again.out).iter().map(|(_, sent, _)| sent).sum();
    assert!(
        again.status == 0 && sent < 40 << 20,
        "{sent}: {}",
        again.err
    );
    assert_arrived(&folder);
}

/// Loaded before the C library. A call takes 20 s, as where memory is short or a file server does
/// not answer, if the path contains what the environment has: the third read, the third write, or
/// the setting of a time. Or each read takes 100 ms.
const SLOW_DISK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int reads, writes;
static int is_meant(const char *path, const char *variable) {
    const char *text = getenv(variable);
    return text && strstr(path, text);
}
static const char *path_of(int fd) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    return path;
}
static void before_read(int fd) {
    const char *path = path_of(fd);
    if (is_meant(path, "SLOW_READS"))
        usleep(100000);
    if (is_meant(path, "HANGING_READ") && __sync_add_and_fetch(&reads, 1) == 3)
        sleep(20);
}
ssize_t pread64(int fd, void *to, size_t count, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t) = dlsym(RTLD_NEXT, "pread64");
    before_read(fd);
    return next(fd, to, count, at);
}
ssize_t read(int fd, void *to, size_t count) {
    ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    before_read(fd);
    return next(fd, to, count);
}
ssize_t pwrite64(int fd, const void *from, size_t count, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (is_meant(path_of(fd), "HANGING_WRITE") && __sync_add_and_fetch(&writes, 1) == 3)
        sleep(20);
    return next(fd, from, count, at);
}
int utimensat(int fd, const char *path, const struct timespec times[2], int flags) {
    int (*next)(int, const char *, const struct timespec[2], int) =
        dlsym(RTLD_NEXT, "utimensat");
    if (path && is_meant(path, "HANGING_TIME"))
        sleep(20);
    return next(fd, path, times, flags);
}
"#;

fn slow_disk(folder: &Path) {
    write(folder, "slow.c", SLOW_DISK);
    sh(folder, "cc -shared -fPIC -o slow.so slow.c -ldl").ends(0);
}

/// Each side hears from the other meanwhile.
#[test]
fn slow_a_disk_that_hangs_for_longer_than_the_silence_loses_no_host() {
    let folder = scratch();
    slow_disk(&folder);
    let read = "HANGING_READ=$PWD/src/held";
    let (direct, login) = (
        "part-push --wire direct <plan.jsonl",
        "part-push --wire ssh <plan.jsonl",
    );
    let back = "cp -r src there; rm -r src
        ipconf-check ip.txt | part-pull --wire direct --workspace \"$PWD/there\" --to src '*'";
    let back_by_login = back.replace("direct", "ssh");
    let routes = [
        ("direct", read, direct),
        ("login", read, login),
        (
            "there",
            "HANGING_WRITE=/.part-push. HANGING_TIME=/.part-push.",
            direct,
        ),
        ("back", "HANGING_READ=$PWD/there/held", &*back_by_login),
        ("back-here", "HANGING_WRITE=/.part-pull.", back),
    ];
    std::thread::scope(|scope| {
        for (name, hangs, script) in routes {
            let folder = folder.join(name);
            scope.spawn(move || {
                plan_in(
                    &folder,
                    &[("held", noise(1, 40 << 20)), ("other", noise(2, 10))],
                );
                let sums = tree(&folder.join("src"));
                let script = format!(
                    "export DGL_TOOLS_CONNECT=local DGL_TOOLS_TEST_SILENCE=15 {hangs}
                    export LD_PRELOAD=\"$PWD/../slow.so\"
                    {script}"
                );
                let begun = Instant::now();
                let ran = sh(&folder, &script);
                let took = begun.elapsed().as_secs();
                assert!(
                    ran.status == 0 && took >= 20,
                    "{name}: {took} s: {}",
                    ran.err
                );
                let is_back = name.starts_with("back");
                let arrived = if is_back { "src" } else { "ws/src" };
                assert!(tree(&folder.join(arrived)) == sums, "{name}");
            });
        }
    });
}

/// The host is kept busy meanwhile, so that nothing but the interrupt ends it.
#[test]
fn slow_an_interrupt_ends_the_comparison_of_a_large_file() {
    let folder = plan(&[("large", noise(1, 40 << 20))]);
    slow_disk(&folder);
    push(&folder, "").ends(0);
    // a minute in all
    let slow = "LD_PRELOAD=$PWD/slow.so SLOW_READS=$PWD/src/large";
    let one = begin_with(&folder, slow, "--verify");
    soon("it compares", || !ours(&folder.join("ws")).is_empty());
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    signal(&one, "-INT");
    let ended = ran(one.wait_with_output().unwrap());
    let took = begun.elapsed().as_secs();
    assert!(
        ended.status == 130 && took < 30,
        "{} after {took} s: {}",
        ended.status,
        ended.err
    );
}

/// One that ends before it has asked for what was kept must not remove what it has come back for.
#[test]
fn old_parts_are_removed_by_a_push_that_comes_as_far_as_to_send_files() {
    let folder = plan(&[("one", noise(1, 100))]);
    push(&folder, "").ends(0);
    let old = folder.join("ws/.part-push.kept/0123456789abcdef.0123456789abcdef");
    let kept = old.parent().unwrap();
    fs::create_dir(kept).unwrap();
    fs::write(kept.join(".made-by-part-push"), "").unwrap();
    let time = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let file = fs::File::create(&old).unwrap();
    file.set_modified(time).unwrap();
    push(&folder, "").ends(0);
    assert!(old.exists(), "all was there, and nothing was asked for");
    write(&folder, "src/one", noise(2, 100));
    map(&folder);
    push(&folder, "").ends(0);
    assert!(ours(&folder.join("ws")).is_empty());
}

/// The agent waits at its end for those that were let in, and for nobody else.
#[test]
fn slow_somebody_who_connects_and_says_nothing_does_not_hold_up_the_end() {
    let folder = plan(&[("slow", noise(1, 12 << 20))]);
    // below those that the kernel gives to others meanwhile
    let port = (28_000..32_000).find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok());
    let port: u16 = port.unwrap();
    let mut push = begin_with(
        &folder,
        &format!("DGL_TOOLS_DATA_PORT={port}"),
        "--wire direct --limit 4M",
    );
    let mut silent = Vec::new();
    while push.try_wait().unwrap().is_none() {
        silent.extend(TcpStream::connect(("127.0.0.1", port)).ok());
        std::thread::sleep(Duration::from_millis(500));
    }
    ran(push.wait_with_output().unwrap()).ends(0);
    assert!(!silent.is_empty());
    soon("nothing of it is left", || {
        ours(&folder.join("ws")).is_empty()
    });
}

/// As a batch system does with a job that it suspends: the network is up, and sshd answers.
#[test]
fn slow_a_host_that_is_frozen_is_given_up_while_bytes_wait_for_it() {
    let folder = plan(&[("large", noise(1, 60 << 20))]);
    executable(
        &folder,
        "way",
        "#!/bin/sh\nexec setsid sh -c 'echo $$ >group; exec \"$@\"' - \"$@\"\n",
    );
    let push = begin_with(
        &folder,
        "DGL_TOOLS_TEST_SILENCE=12",
        "--wire ssh --limit 4M --connect './way env'",
    );
    soon("some of it is there", || {
        !ours(&folder.join("ws")).is_empty() && folder.join("group").exists()
    });
    std::thread::sleep(Duration::from_secs(1));
    let agent = Group(read(&folder, "group"));
    let begun = Instant::now();
    assert!(agent.signal("-STOP"));
    let ended = ran(push.wait_with_output().unwrap());
    let took = begun.elapsed().as_secs();
    assert!(
        ended.status == 74
            && ended.err.contains("no data was exchanged with it for 12 s")
            && took < 60,
        "{} after {took} s: {}",
        ended.status,
        ended.err
    );
}

/// A process group, by its number; killed with the test.
struct Group(String);

impl Group {
    fn signal(&self, name: &str) -> bool {
        let group = format!("-{}", self.0.trim());
        let kill = Command::new("kill").args([name, "--", &group]).status();
        kill.is_ok_and(|status| status.success())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

/// A host or container that was restarted has the same name, and somebody has the pid of the
/// push of old.
#[test]
fn slow_a_dead_push_is_known_whoever_has_its_pid() {
    let folder = plan(&[("large", noise(1, 40 << 20))]);
    slow_way(&folder, 20_000_000);
    let mut one = begin(&folder, "--connect './way env'");
    soon("half of it is there", || folder.join("half").exists());
    let ws = folder.join("ws");
    let stage = || {
        ours(&ws)
            .into_iter()
            .find(|name| name.ends_with(".0"))
            .map(|name| ws.join(name))
    };
    soon("much of it has arrived", || {
        let parts = stage()
            .into_iter()
            .flat_map(|stage| fs::read_dir(stage).into_iter().flatten().flatten());
        parts
            .filter_map(|part| part.metadata().ok())
            .any(|meta| meta.len() > 15 << 20)
    });
    // its power goes: nobody there cleans up, and none sees that another has gone
    let kill = "pids=; for p in /proc/[0-9]*; do case $(readlink $p/cwd) in \"$PWD\") \
        [ ${p#/proc/} = $$ ] || pids=\"$pids ${p#/proc/}\" ;; esac; done
        kill -STOP $pids; kill -KILL $pids";
    sh(&folder, kill);
    one.wait().unwrap();
    let stage = stage().expect("what it left");
    let owner = "echo \"$(cat /proc/sys/kernel/hostname) $(cat \
        /proc/sys/kernel/random/boot_id)$(readlink /proc/self/ns/pid) $PPID\"";
    write(&stage, "owner", sh(&folder, owner).out);
    let begun = Instant::now();
    let again = push(&folder, "");
    assert!(
        again.status == 0 && begun.elapsed() < Duration::from_secs(8),
        "{:?}: {}",
        begun.elapsed(),
        again.err
    );
    let sent: u64 = pushed(&again.out).iter().map(|(_, sent, _)| sent).sum();
    assert!(sent < 30 << 20, "{sent} were sent again");
    assert!(tree(&folder.join("ws/src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
}

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
        println!("skipped: only root can become another user");
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

const LARGE: usize = 40 << 20;

/// What left this machine of the large file, for all hosts.
fn large_sent(out: &str) -> u64 {
    of_size(out, LARGE).iter().map(|(.., sent)| sent).sum()
}

#[test]
fn real_hosts_behind_a_slow_link_get_what_shrinks_compressed() {
    let lab = Lab::up(3, "50mbit", &b"0 1 2 3 4 5 6 7\n".repeat(LARGE / 16));
    let ran = lab.push("");
    ran.ends(0);
    let sent = large_sent(&ran.out);
    // the first 4 MiB show how slow it is
    assert!((4 << 20..6 << 20).contains(&sent), "{sent}");
    for host in [2, 3] {
        assert!(lab.has(host), "host {host}");
    }
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
        cluster.0.display()
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
    let ws = cluster.0.join("h2/srv/ws");
    assert!(
        tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty(),
        "{:?}",
        ours(&ws)
    );
}
