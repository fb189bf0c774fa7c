//! part-pull: what it brings back, and from where.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use support::{
    Cluster, OpenFolder, Ran, executable, make_folder, only_root_can, read, scratch, sh, write,
};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                found.push(entry.path().strip_prefix(folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

fn pull(folder: &Path, options: &str) -> Ran {
    sh(
        folder,
        &format!(
            "ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got \
             {options}"
        ),
    )
}

/// What host-agent says to requests that are typed by hand: the lines, and the content behind them.
fn ask_agent(folder: &Path, requests: &str) -> Vec<(Value, Vec<u8>)> {
    write(folder, "requests", requests);
    sh(folder, "host-agent <requests >events").ends(0);
    let events = fs::read(folder.join("events")).unwrap();
    let (mut rest, mut answers) = (events.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line: Value = serde_json::from_slice(&rest[..end]).unwrap();
        let length = line["bytes"].as_u64().unwrap_or(0) as usize;
        answers.push((line, rest[end + 1..end + 1 + length].to_vec()));
        rest = &rest[end + 1 + length..];
    }
    answers
}

/// A file comes as it was listed, or the host reports why not.
#[test]
fn a_host_sends_a_file_as_it_was_listed_or_reports_why_not() {
    let folder = scratch();
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let give = r#"{"do":"file","step":"give","base":"."}"#;
    let list = |file: &str| {
        let find =
            format!("{give}\n{{\"do\":\"file\",\"step\":\"find\",\"roots\":[\"{file}\"]}}\n");
        let answers = ask_agent(&folder, &find);
        answers[1].0["entries"][0]["meta"].clone()
    };
    let send = |file: &str, meta: &Value| {
        let send = serde_json::json!({
            "do": "file", "step": "send", "files": [{"id": 7, "path": file, "meta": meta}]
        });
        let mut answers = ask_agent(&folder, &format!("{give}\n{send}\n"));
        answers.remove(0);
        let bytes: Vec<u8> = answers.iter().flat_map(|(_, body)| body.clone()).collect();
        let last = |step: &&(Value, Vec<u8>)| step.0["step"] != "batch" || answers.len() == 1;
        let (last, _) = answers.iter().rfind(last).unwrap();
        (
            last["step"].as_str().unwrap().to_owned(),
            last["fault"].clone(),
            bytes,
        )
    };
    for size in [0, 1, 65_536, 1 << 20, (1 << 20) + 1, 2_500_000] {
        write(&folder, "file", &content[..size]);
        let meta = list("file");
        let (step, fault, bytes) = send("file", &meta);
        let end = if size > 1 << 20 { "commit" } else { "batch" };
        assert_eq!((step.as_str(), fault), (end, Value::Null), "{size}");
        assert!(bytes == content[..size], "{size}");
        // it is longer or shorter by now
        for now in [size + 1, size / 2] {
            write(&folder, "file", &content[..now]);
            let (step, fault, _) = send("file", &meta);
            assert_eq!(
                (step.as_str(), fault),
                ("abandon", "changed".into()),
                "{size} {now}"
            );
        }
    }
    let meta = list("file");
    let (step, fault, _) = send("missing", &meta);
    let missing = serde_json::json!({"system": 2});
    assert_eq!((step.as_str(), fault), ("abandon", missing));
    // zeros are not sent
    sh(&folder, "truncate -s 5000000000 far; printf end >>far").ends(0);
    let (step, _, bytes) = send("far", &list("far"));
    assert!(step == "commit" && bytes.ends_with(b"end"));
    assert!(bytes.len() < 2 << 20, "{}", bytes.len());
    fs::remove_file(folder.join("far")).unwrap();
}

/// What a host cannot read does not come as zeros.
#[test]
fn slow_files_that_cannot_be_read_are_told() {
    let OpenFolder(folder) = &OpenFolder::new("unreadable");
    make_folder(folder, "ws/deep");
    write(folder, "ip.txt", "127.0.0.1\n");
    write(folder, "ws/large", vec![7; 17 << 20]);
    write(folder, "ws/middle", vec![7; 2 << 20]);
    write(folder, "ws/small", "small");
    write(folder, "ws/deep/other", "other");
    fs::hard_link(folder.join("ws/deep/other"), folder.join("ws/same")).unwrap();
    sh(
        folder,
        "chmod 000 ws/large ws/middle ws/small; chmod a+rx ws ws/deep",
    );
    // root may read everything, so this host is another user's
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups env";
    let route = if sh(folder, &format!("{other} true")).status == 0 {
        other
    } else {
        "env A=b"
    };
    let ran = sh(
        folder,
        &format!(
            "ipconf-check ip.txt | part-pull --connect '{route}' --workspace \"$PWD/ws\" \
             --to got '*'"
        ),
    );
    ran.ends(1);
    assert_eq!(
        files(&folder.join("got")),
        ["deep/other", "same"].map(PathBuf::from),
        "{}",
        ran.err
    );
    for (name, ok) in [
        ("large", false),
        ("middle", false),
        ("small", false),
        ("deep/other", true),
        ("same", true),
    ] {
        assert!(
            ran.out.contains(&format!(
                "\"src\":\"{name}\",\"dst\":\"got/{name}\",\"ok\":{ok}"
            )),
            "{name}: {}",
            ran.out
        );
        assert_eq!(folder.join("got").join(name).exists(), ok, "{name}");
    }
    ran.err_has_times("could not be read whole there", 3);
    assert_eq!(read(folder, "got/same"), "other");
}

/// A directory whose names cannot be read is not an empty one, and the files of a directory that
/// may be listed but not entered are not missing.
#[test]
fn slow_folders_that_cannot_be_read_are_told() {
    let OpenFolder(folder) = &OpenFolder::new("unreadable-folders");
    for name in ["closed", "listed", "open", "lost+found"] {
        fs::create_dir_all(folder.join("ws/logs").join(name)).unwrap();
        fs::write(folder.join("ws/logs").join(name).join("a.log"), name).unwrap();
    }
    make_folder(folder, "ws/lost+found");
    write(folder, "ip.txt", "127.0.0.1\n");
    sh(
        folder,
        "chmod a+rx ws ws/logs ws/logs/open; chmod a+r ws/logs/open/a.log; \
         chmod 700 ws/logs/closed ws/lost+found; chmod 744 ws/logs/listed",
    );
    // root may read everything, so this host is another user's
    let other = "setpriv --reuid=65534 --regid=65534 --clear-groups env";
    if sh(folder, &format!("{other} true")).status != 0 {
        return println!("skipped: no right to be another user");
    }
    let pull = |options: &str| {
        let script = format!(
            "ipconf-check ip.txt | part-pull --connect '{other}' --workspace \"$PWD/ws\" --to got \
             {options}"
        );
        sh(folder, &script)
    };
    pull("--dry-run logs")
        .ends(1)
        .err_has("./logs/closed: what is there cannot be read");
    let ran = pull("logs");
    ran.ends(1);
    for (name, ok) in [
        ("closed", false),
        ("listed/a.log", false),
        ("open/a.log", true),
    ] {
        let record = format!("\"src\":\"logs/{name}\",\"dst\":\"got/logs/{name}\",\"ok\":{ok}");
        assert!(ran.out.contains(&record), "{name}: {}", ran.out);
        assert_eq!(folder.join("got/logs").join(name).exists(), ok, "{name}");
        let report = format!("./logs/{name}: what is there cannot be read: Permission denied");
        assert_eq!(ran.err.contains(&report), !ok, "{name}: {}", ran.err);
    }
    // a directory in which nothing is wanted does no harm
    pull("logs/open '*.pt' logs/open/a.log").ends(0);
    pull("missing")
        .ends(1)
        .err_has("host 0 (127.0.0.1) has no file in ");
}

#[test]
fn empty_folders_come_too_and_only_what_is_of_part_push_does_not() {
    let folder = scratch();
    make_folder(&folder, "ws/out/empty/deep");
    make_folder(&folder, "ws/out/.part-push.kept");
    make_folder(&folder, "ws/out/.part-push.0123.4");
    write(&folder, "ws/out/.part-pushed/a", "a");
    write(&folder, "ws/out/.part-push.lock", "of the user's");
    write(&folder, "ip.txt", "127.0.0.1\n");
    let got = pull(&folder, "out");
    got.ends(0);
    assert!(folder.join("got/out/empty/deep").is_dir());
    assert_eq!(
        files(&folder.join("got/out")),
        [".part-push.lock", ".part-pushed/a"].map(PathBuf::from)
    );
    got.out_has_times("\"type\":\"pulled\"", 3);
    pull(&folder, "out --jobs 1")
        .ends(0)
        .out_has_times("\"skipped\":true", 3);
}

#[test]
fn a_host_cannot_choose_hidden_names_modes_or_times() {
    let folder = scratch();
    let ws = PathBuf::from(format!(
        "/dev/shm/dgl-tools-test-pull-{}",
        std::process::id()
    ));
    for name in [
        ".git/hooks/post-checkout",
        "deep/.git/config",
        "open",
        "late",
    ] {
        fs::create_dir_all(ws.join(name).parent().unwrap()).unwrap();
        executable(&ws, name, "#!/bin/sh\n");
    }
    write(&folder, "ip.txt", "127.0.0.1\n");
    // beyond what a file system or a calendar has
    let late = std::time::UNIX_EPOCH + std::time::Duration::from_secs(9_000_000_000_000_000_000);
    let stamped = fs::File::options()
        .write(true)
        .open(ws.join("late"))
        .unwrap()
        .set_modified(late);
    let pull = |pattern: &str| {
        let script = format!(
            "umask 077; ipconf-check ip.txt | part-pull --connect local --workspace '{}' --to got \
             {pattern}",
            ws.display()
        );
        sh(&folder, &script)
    };
    let all = pull("'*' '**'");
    let found = files(&folder.join("got"));
    let named = pull(".git");
    let hook = folder.join("got/.git/hooks/post-checkout").exists();
    fs::remove_dir_all(&ws).unwrap();
    assert_eq!(all.status, 0, "{stamped:?}: {}", all.err);
    assert_eq!(found, ["late", "open"].map(PathBuf::from));
    assert_eq!(
        fs::metadata(folder.join("got/open")).unwrap().mode() & 0o777,
        0o700
    );
    assert!(
        named.status == 0 && hook,
        "what is named comes: {}",
        named.err
    );
}

/// Nobody else may read a file of mode 0600 while it is on its way.
#[test]
fn what_is_secret_is_secret_on_its_way() {
    let folder = scratch();
    make_folder(&folder, "ws");
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "ws/secret", vec![7; 20 << 20]);
    executable(
        &folder,
        "way",
        "#!/bin/sh\n\"$@\" | { dd bs=4096 count=2000 2>&-; touch half; until [ -e on ]; do sleep \
         0.1; done; cat; }\n",
    );
    let script = "chmod 600 ws/secret; ipconf-check ip.txt | part-pull --connect './way env' \
        --workspace \"$PWD/ws\" --to got secret >out & \
        until [ -e half ] && [ -s got/.part-pull.[0-9a-f]* ]; do sleep 0.1; done; stat -c %a \
        got/.part-pull.[0-9a-f]*; touch on; wait $!";
    sh(&folder, script).gives(0, "600\n");
    assert_eq!(
        fs::metadata(folder.join("got/secret")).unwrap().mode() & 0o777,
        0o600
    );
}

/// tmpfs gives a file with holes more space when they are read through a mapping.
#[test]
fn a_file_that_is_read_while_it_is_pulled_has_not_changed() {
    let folder = scratch();
    let ws = PathBuf::from(format!(
        "/dev/shm/dgl-tools-test-mapped-{}",
        std::process::id()
    ));
    fs::create_dir_all(&ws).unwrap();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let large = fs::File::create(ws.join("large")).unwrap();
    std::io::Write::write_all(&mut &large, &[7; 4 << 20]).unwrap();
    large.set_len(6 << 20).unwrap();
    let script = format!(
        "ipconf-check ip.txt | part-pull --connect local --limit 4MB/s --workspace {0} --to got \
         large & for try in $(seq 1000); do ls got/.part-pull.*[0-9a-f] 2>/dev/null && break; \
         sleep 0.02; done; python3 -c 'import mmap, sys; file = open(sys.argv[1], \"r+b\"); \
         sum(mmap.mmap(file.fileno(), 0)[::4096])' {0}/large; wait $!",
        ws.display()
    );
    let ran = sh(&folder, &script);
    let now = fs::metadata(ws.join("large")).unwrap().blocks();
    fs::remove_dir_all(&ws).unwrap();
    assert_eq!(ran.status, 0, "{now}: {}", ran.err);
    assert_eq!(
        fs::metadata(folder.join("got/large")).unwrap().len(),
        6 << 20
    );
}

/// They would take room for ever: nobody continues them.
#[test]
fn slow_what_came_of_another_version_is_removed_when_a_file_is_here() {
    let folder = scratch();
    make_folder(&folder, "ws");
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "ws/large", vec![7; 20 << 20]);
    write(&folder, "ws/other", vec![7; 20 << 20]);
    let killed = "ipconf-check ip.txt >hosts.jsonl; part-pull --connect local --limit 8MB/s \
        --workspace \"$PWD/ws\" --to got FILE <hosts.jsonl & for try in $(seq 1000); do \
        [ \"$(ls got/.part-pull.*.???????????????? 2>/dev/null | wc -l)\" -ge COUNT ] && break; \
        sleep 0.02; done; sleep 0.5; kill -KILL $!";
    sh(
        &folder,
        &killed.replace("FILE", "other").replace("COUNT", "1"),
    );
    sh(
        &folder,
        &killed.replace("FILE", "large").replace("COUNT", "2"),
    );
    let left = |folder: &Path| {
        let names = files(folder).into_iter();
        let names = names.filter(|name| name.to_string_lossy().starts_with(".part-pull."));
        names
            .filter(|name| !name.ends_with(".part-pull.lock"))
            .collect::<Vec<_>>()
    };
    let got = folder.join("got");
    let before = left(&got);
    assert!(
        before.len() >= 2 && !got.join("large").exists(),
        "{before:?}"
    );
    write(&folder, "ws/large", vec![8; 20 << 20]);
    pull(&folder, "large").ends(0);
    assert!(fs::read(got.join("large")).unwrap() == vec![8; 20 << 20]);
    // the other file is still to be continued, without the room for its rest
    let after = left(&got);
    assert!(
        !after.is_empty() && after.len() < before.len(),
        "{before:?} {after:?}"
    );
    for name in after {
        let meta = fs::metadata(got.join(name)).unwrap();
        assert!(
            meta.blocks() * 512 < meta.len() + (1 << 20),
            "{}",
            meta.blocks()
        );
    }
    let ran = pull(&folder, "other");
    assert!(
        ran.status == 0 && left(&got).is_empty(),
        "{}{:?}",
        ran.err,
        left(&got)
    );
}

/// Whatever a host sends: it costs no more than a few megabytes, and is given up at once.
#[test]
fn slow_a_host_that_lies_is_given_up() {
    let folder = scratch();
    write(&folder, "ws/a", "a");
    write(&folder, "ip.txt", "127.0.0.1\n");
    // the host has the agent already
    sh(
        &folder,
        "ipconf-check ip.txt | part-pull --connect 'env A=b' --workspace \"$PWD/ws\" --to got \
         --dry-run a",
    )
    .ends(0);
    let sum = "0".repeat(32);
    let lies = [
        (
            concat!(
                r#"{"event":"file","kind":"block","id":0,"offset":0,"length":1,"sum":"SUM","#,
                r#""bytes":1099511627776}"#
            ),
            "1099511627776 bytes",
        ),
        (
            r#"{"event":"file","kind":"there","entries":[null]}"#,
            "it listed no files",
        ),
        ("no event", "is not a message"),
    ];
    for (forgery, why) in lies {
        let forgery = forgery.replace("SUM", &sum);
        let route =
            format!("#!/bin/sh\n\"$@\" | {{ sed -u '/\"ready\"/q'; exec yes '{forgery}'; }}\n");
        executable(&folder, "way", &route);
        // what it takes more memory than this, it does not get
        let script = "ulimit -v 4000000; ipconf-check ip.txt | timeout 60 part-pull --connect \
            './way env' --workspace \"$PWD/ws\" --to got a";
        let ran = sh(&folder, script);
        assert!(
            ran.status == 74 && ran.err.contains(why),
            "{forgery}: {} {}",
            ran.status,
            ran.err
        );
        assert!(!folder.join("got/a").exists(), "{forgery}");
    }
}

/// What another user puts into the directory on either side leads to no file of the user's.
#[test]
fn slow_what_another_user_puts_into_a_folder_leads_nowhere() {
    if only_root_can("act as another user") {
        return;
    }
    const OF_OTHER: &str = "is reached by a symbolic link that belongs to another user";
    let table = [
        ("ln -s ../home/new got/.part-pull.lock", 1, "symbolic links"),
        ("mkfifo -m 666 got/.part-pull.lock", 1, "got: "),
        (
            "mkdir -m 777 got/logs; mkfifo -m 666 got/logs/.part-pull.0",
            0,
            "",
        ),
        ("ln -s ../home got/logs", 1, OF_OTHER),
        // and on the host
        ("rm -r ws/logs; ln -s ../home ws/logs", 1, OF_OTHER),
    ];
    for (lays, status, message) in table {
        let folder = scratch();
        let laid = sh(
            &folder,
            &format!(
                "echo 127.0.0.1 >ip.txt; mkdir -m 777 got ws ws/logs; echo a >ws/logs/a; \
                 mkdir -m 700 home; echo secret >home/a
                 setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec '{lays}'"
            ),
        );
        assert_eq!(laid.status, 0, "{lays}: {}", laid.err);
        let ran = sh(
            &folder,
            "ipconf-check ip.txt | timeout 30 part-pull --connect local --workspace \"$PWD/ws\" \
             --to got logs/a",
        );
        assert_eq!(ran.status, status, "{lays}: {}", ran.err);
        let all = format!("{}{}", ran.out, ran.err);
        assert!(all.contains(message), "{lays}: {all}");
        assert_eq!(files(&folder.join("home")), [PathBuf::from("a")], "{lays}");
        assert_eq!(
            fs::read(folder.join("home/a")).unwrap(),
            b"secret\n",
            "{lays}"
        );
        assert!(
            !sh(&folder, "cat $(find got -type f) </dev/null")
                .out
                .contains("secret"),
            "{lays}"
        );
    }
}

#[test]
fn slow_results_come_back_as_they_are() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let ws = folder.join("ws");
    make_folder(&ws, "logs/deep");
    let odd = OsStr::from_bytes(b"two  words\n$(touch pwned) it's \xff");
    for (name, content) in [
        ("logs/a.log", "a"),
        ("logs/deep/b.log", ""),
        ("logs/-c.log", "c"),
        ("secret", "s"),
    ] {
        write(&ws, name, content);
    }
    fs::write(ws.join("logs").join(odd), "odd").unwrap();
    let large: Vec<u8> = (0..20_000_000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .take(40 << 20)
        .collect();
    write(&ws, "model.pt", &large);
    symlink("/etc/passwd", ws.join("logs/link.log")).unwrap();
    sh(
        &folder,
        "chmod 640 ws/logs/a.log; touch -d '2001-02-03 04:05:06.123456789' ws/logs/a.log",
    );

    pull(&folder, "--dry-run 'logs/*.log'")
        .ends(0)
        .out_has("logs/a.log");
    assert!(!folder.join("got").exists());
    let got = pull(&folder, "'logs/*.log'");
    got.ends(0);
    assert_eq!(
        files(&folder.join("got")),
        ["logs/-c.log", "logs/a.log"].map(PathBuf::from)
    );
    let (there, here) = (
        fs::metadata(ws.join("logs/a.log")).unwrap(),
        fs::metadata(folder.join("got/logs/a.log")).unwrap(),
    );
    assert_eq!(
        (there.mode(), there.mtime(), there.mtime_nsec()),
        (here.mode(), here.mtime(), here.mtime_nsec())
    );

    pull(&folder, "logs model.pt").ends(0);
    let expected = ["logs/-c.log", "logs/a.log", "logs/deep/b.log"]
        .map(PathBuf::from)
        .into_iter();
    let expected: Vec<PathBuf> = expected
        .chain([Path::new("logs").join(odd), "model.pt".into()])
        .collect();
    assert_eq!(
        files(&folder.join("got")),
        expected,
        "no link is followed, nothing else is brought"
    );
    assert!(
        fs::read(folder.join("got/model.pt")).unwrap() == large
            && fs::read(folder.join("got/logs").join(odd)).unwrap() == b"odd"
    );
    assert!(!folder.join("pwned").exists() && !ws.join("pwned").exists());
    let again = pull(&folder, "logs model.pt");
    again.ends(0).out_has_times("\"skipped\":true", 5);

    // a large file that broke off goes on there at a whole block; what is here and differs comes
    // again
    let rest = (40 << 20) - 5_000_000 / 65_536 * 65_536;
    for (flip, received) in [(0u8, rest), (1, rest + 65_536)] {
        let fault = sh(
            &folder,
            "rm got/model.pt; ulimit -f 10000; ipconf-check ip.txt | part-pull --connect local \
             --workspace \"$PWD/ws\" --to got model.pt",
        );
        assert_ne!(fault.status, 0);
        // one that was killed leaves its lock too, which nobody holds
        let ours = |name: &PathBuf| {
            name.to_string_lossy().starts_with(".part-pull") && name != Path::new(".part-pull.lock")
        };
        let begun: Vec<_> = files(&folder.join("got"))
            .into_iter()
            .filter(ours)
            .collect();
        assert_eq!(begun.len(), 1, "{}", fault.err);
        let begun = folder.join("got").join(&begun[0]);
        let mut content = large[..5_000_000].to_vec();
        content[77] ^= flip;
        fs::write(&begun, content).unwrap();
        pull(&folder, "model.pt")
            .ends(0)
            .out_has(&format!("\"received_bytes\":{received}"));
        assert!(fs::read(folder.join("got/model.pt")).unwrap() == large && !begun.exists());
    }

    for (options, status, why) in [
        (
            "nothing",
            1,
            "that matches nothing\n  fix: perhaps the job ended before it wrote",
        ),
        ("../x", 2, "is not a path below the workspace"),
        (
            "--workspace /no/such/folder x",
            2,
            "cannot be used multiple times",
        ),
    ] {
        pull(&folder, options).ends(status).err_has(why);
    }
    sh(
        &folder,
        "ipconf-check ip.txt | part-pull --connect local --workspace /no/such/folder --to got x",
    )
    .ends(74)
    .err_has("there is no directory")
    .out_has("\"ok\":false");
}

#[test]
fn slow_only_what_differs_comes() {
    let folder = scratch();
    make_folder(&folder, "ws");
    write(&folder, "ip.txt", "127.0.0.1\n");
    let mut content: Vec<u8> = (0..5_000_000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let there = folder.join("ws/model.pt");
    fs::write(&there, &content).unwrap();
    pull(&folder, "model.pt").ends(0);
    // where something changes, and how much comes
    for (at, received) in [(7 << 20, 65_536), ((9 << 20) - 5, 131_072)] {
        content[at..at + 10].fill(1);
        fs::write(&there, &content).unwrap();
        let again = pull(&folder, "model.pt");
        let expected = format!("\"received_bytes\":{received}");
        again.ends(0).out_has(&expected);
        assert!(fs::read(folder.join("got/model.pt")).unwrap() == content);
        assert_eq!(files(&folder.join("got")), [PathBuf::from("model.pt")]);
    }
}

#[test]
fn slow_a_large_file_that_breaks_off_is_resumed() {
    let folder = scratch();
    make_folder(&folder, "ws");
    write(&folder, "ip.txt", "127.0.0.1\n");
    let large: Vec<u8> = (0..20_000_000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
        .take((40 << 20) + 12_345)
        .collect();
    write(&folder, "ws/model.pt", &large);
    write(&folder, "ws/first", "small");
    // breaks off in the middle of the large file
    executable(
        &folder,
        "cut",
        "#!/bin/sh\n\"$@\" 2>&- | { dd bs=4096 count=4000; kill $$; }\n",
    );
    let pull = |route: &str| {
        // the home of the host
        let ran = format!(
            "ipconf-check ip.txt | HOME=$PWD part-pull --connect '{route}' \
             --workspace '~/ws' --to got first model.pt"
        );
        sh(&folder, &ran)
    };
    let begun = || {
        let names = files(&folder.join("got"))
            .into_iter()
            .map(|name| name.into_os_string().into_string().unwrap());
        names
            .filter(|name| name.starts_with(".part-pull."))
            .collect::<Vec<_>>()
    };
    let broken = pull("./cut env");
    broken.out_has("\"dst\":\"got/first\",\"ok\":true");
    assert!(folder.join("got/first").exists());
    broken
        .ends(74)
        .out_has("\"ok\":false")
        .err_has("connection lost");
    assert!(
        !folder.join("got/model.pt").exists() && begun().len() == 1,
        "{:?}",
        files(&folder.join("got"))
    );
    // as after a loss of power: what is whole, and behind that whatever there is
    let [part] = begun().try_into().unwrap();
    let mut content = large.clone();
    content[4_194_304..].fill(7);
    fs::write(folder.join("got").join(part), content).unwrap();
    let rest = pull("env A=b");
    let received = format!("\"received_bytes\":{}", large.len() - 4_194_304);
    rest.ends(0).out_has(&received);
    assert!(fs::read(folder.join("got/model.pt")).unwrap() == large && begun().is_empty());
}

#[test]
fn slow_two_that_bring_files_to_one_folder_take_turns() {
    let folder = scratch();
    make_folder(&folder, "ws");
    make_folder(&folder, "got");
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "ws/a", "a");
    // one that is ended while it waits touches nothing; without --foreground the signal comes
    // twice, and the second one ends it at once
    let ended = "sh -c 'exec 9>got/.part-pull.lock; flock 9; : >held; exec sleep 30' & holder=$!; \
        until [ -e held ]; do sleep 0.1; done
        ipconf-check ip.txt | timeout --foreground -s TERM 5 part-pull --connect local \
            --workspace \"$PWD/ws\" --to got a; echo $?; kill $holder";
    let ran = sh(&folder, ended);
    ran.out_has("\"ok\":false").err_has("waiting for its end");
    assert!(ran.out.ends_with("\n124\n"), "{}{}", ran.out, ran.err);
    let held = "flock -x got/.part-pull.lock sh -c 'echo; sleep 5; [ ! -e got/a ] && echo alone \
        >&2' | { read _;";
    sh(
        &folder,
        &format!(
            "{held} ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to \
             got a; }}"
        ),
    )
    .ends(0)
    .err_has("waiting for its end")
    .err_has("alone");
    assert_eq!(files(&folder.join("got")), [PathBuf::from("a")]);
}

#[test]
fn real_hosts_give_back_what_they_have() {
    let folder = scratch();
    let cluster = Cluster::up(3);
    write(&folder, "ip.txt", "10.77.0.2\n10.77.0.3\n");
    for host in [2, 3] {
        let ws = cluster.0.join(format!("h{host}/srv/ws/out"));
        fs::create_dir_all(&ws).unwrap();
        for k in 0..1500 {
            write(&ws, format!("{k}.log"), format!("{host} {k}"));
        }
    }
    let got = cluster.sh(
        &folder,
        "ipconf-check ip.txt | part-pull --workspace /srv/ws --to got out",
    );
    got.ends(0)
        .out_has_times("\"type\":\"pulled\"", 3000)
        .out_lacks("\"ok\":false");
    for (host, id) in [(2, 0), (3, 1)] {
        assert_eq!(files(&folder.join(format!("got/h{id}"))).len(), 1500);
        assert_eq!(
            read(&folder, format!("got/h{id}/out/1499.log")),
            format!("{host} 1499")
        );
    }
    // one host down: the other's files come, and the stream says so
    cluster.call(&["stop", "3"]);
    let down = cluster.sh(
        &folder,
        "rm -rf got; ipconf-check ip.txt | DGL_TOOLS_CONNECT_TIMEOUT=5s \
        part-pull --workspace /srv/ws --to got out",
    );
    down.ends(74).err_has("host 1 (10.77.0.3)");
    assert!(
        files(&folder.join("got/h0")).len() == 1500
            && down.out.matches("\"ok\":false").count() == 1
    );
    cluster
        .sh(
            &folder,
            "rm -rf got; ipconf-check ip.txt | part-pull --host 0 \
        --workspace /srv/ws --to got 'out/1*.log'",
        )
        .ends(0);
    assert!(folder.join("got/out/1.log").exists() && !folder.join("got/out/2.log").exists());
    cluster.assert_clean();
}
