//! part-pull: hosts and other users that do harm, and real hosts; ../cases/slow_part_pull.txt has
//! what it brings back.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use support::{
    Cluster, OpenFolder, executable, make_folder, only_root_can, read, scratch, sh, write,
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
        let find = format!(
            "{give}\n{{\"do\":\"file\",\"step\":\"find\",\"roots\":[\"{file}\"],\"enter\":[]}}\n"
        );
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
        // it has grown
        write(&folder, "file", &content[..=size]);
        let (step, fault, bytes) = send("file", &meta);
        assert_eq!((step.as_str(), fault), ("commit", Value::Null), "{size}");
        assert!(bytes == content[..size], "{size}");
        // it is shorter by now, or another file
        for change in ["truncate -s 0", "mv file old; cp old"] {
            sh(&folder, &format!("{change} file"));
            let (step, fault, _) = send("file", &meta);
            let changed = ("abandon", "changed".into());
            assert_eq!((step.as_str(), fault), changed, "{size} {change}");
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
    ran.err_has_times("the host could not read all of it", 3);
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
        return support::skipped!("no right to be another user");
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
        .err_has("./logs/closed: the existing file cannot be read");
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
        let report = format!("./logs/{name}: the existing file cannot be read: Permission denied");
        assert_eq!(ran.err.contains(&report), !ok, "{name}: {}", ran.err);
    }
    // a directory in which nothing is wanted does no harm
    pull("logs/open '[l]ogs/open/*.log' logs/open/a.log").ends(0);
    pull("missing")
        .ends(1)
        .err_has("host 0 (127.0.0.1) has no file in ");
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
         large & for try in $(seq 1000); do ls got/.part-pull.*/[0-9a-f]* 2>/dev/null && break; \
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
            "more answers than requests",
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
fn real_hosts_give_back_what_they_have() {
    let folder = scratch();
    let cluster = Cluster::up(3);
    write(&folder, "ip.txt", "10.77.0.2\n10.77.0.3\n");
    for host in [2, 3] {
        let ws = cluster.lab.join(format!("h{host}/srv/ws/out"));
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
