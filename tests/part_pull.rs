//! part-pull: what it brings back, and from where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use support::{Cluster, Ran, executable, root, scratch, sh, shells, takes_seconds};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path().strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

fn pull(folder: &Path, options: &str) -> Ran {
    sh(folder, &format!("ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got {options}"))
}

/// A part of a file is as long as was asked for, whatever became of the file since.
#[test]
fn a_host_gives_exactly_what_was_asked_for() {
    let folder = scratch("pull-rest");
    let common = root().join("common/src/remote/call.sh");
    let script = [common, root().join("tools/part-pull/src/host.sh")].map(|file| fs::read_to_string(file).unwrap()).concat();
    fs::write(folder.join("host.sh"), format!("raw_mark=mark base=.\n{script}")).unwrap();
    let content: Vec<u8> = (0..400_000u32).map(|n| (n % 251) as u8).collect();
    for shell in shells().map(|shell| shell.trim_end_matches(" sh")) {
        // busybox's own dd does not say how many bytes they were
        let tools = if shell == "busybox" { "sh dd" } else { "sh" };
        let links = format!("rm -rf bin; mkdir bin; for tool in {tools}; do ln -s \"$(command -v {shell})\" bin/$tool || exit; done");
        assert_eq!(sh(&folder, &links).status, 0, "{shell}");
        // the first block, bytes, the size of the file by then
        let parts = [(0, 200_000, 200_000), (1, 131_072, 400_000), (0, 65_536, 65_536), (0, 1, 1), (1, 1, 100_000)];
        let shrunk = [(0, 200_000, 100_000), (1, 200_000, 70_000), (2, 50_000, 1000), (0, 9, 0)];
        for (block, bytes, size) in parts.into_iter().chain(shrunk) {
            fs::write(folder.join("file"), &content[..size]).unwrap();
            let (blocks, rest) = (bytes / 65_536, bytes % 65_536);
            let ran = sh(&folder, &format!("PATH=$PWD/bin:$PATH; echo rest {block} {blocks} {rest} file | sh ./host.sh >out"));
            assert_eq!(ran.status, 0, "{shell}: {}", ran.err);
            let mut expected: Vec<u8> = content[..size].get(block * 65_536..).unwrap_or_default().iter().copied().take(bytes).collect();
            // busybox's dd does not say how much is missing: that the file changed is seen by its size
            let lacking = if shell == "busybox" { 0 } else { bytes - expected.len() };
            expected.resize(bytes, 0);
            let out = fs::read(folder.join("out")).unwrap();
            let said = format!("\nrest {lacking}\n");
            assert!(out == [b"ready\nmark\n", &*expected, said.as_bytes()].concat(), "{shell}: {block} {bytes} {size}: {}", out.len());
        }
        let ran = sh(&folder, "PATH=$PWD/bin:$PATH; echo rest 0 1 5 missing | sh ./host.sh | tail -n 1");
        assert_eq!(ran.out, "rest 65541\n", "{shell}");
        // a file of more than 2^31 bytes, for shells that count no further
        let far =
            "PATH=$PWD/bin:$PATH; truncate -s 5000000000 far; printf end >>far; echo rest 76293 0 61955 far | sh ./host.sh | tail -c 14";
        assert_eq!(sh(&folder, far).out, "\0\0\0end\nrest 0\n", "{shell}");
        fs::remove_file(folder.join("far")).unwrap();
    }
}

/// What a host cannot read does not come as zeros.
#[test]
fn files_that_cannot_be_read_are_told() {
    let folder = scratch("pull-unreadable");
    fs::create_dir_all(folder.join("ws/deep")).unwrap();
    fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    fs::write(folder.join("ws/large"), vec![7; 17 << 20]).unwrap();
    fs::write(folder.join("ws/small"), "small").unwrap();
    fs::write(folder.join("ws/deep/other"), "other").unwrap();
    fs::hard_link(folder.join("ws/deep/other"), folder.join("ws/same")).unwrap();
    // tools of a host whose disk fails: as GNU tar does it, zeros and a status
    for (tool, broken) in [
        ("dd", "case $* in *count=272*) exit 1 ;; esac\nexec /bin/dd \"$@\""),
        ("tar", "/bin/tar \"$@\" | sed s/small/00000/2\nexit 2"),
        ("cksum", "for file; do case $file in *small*) ;; *) /usr/bin/cksum \"$file\" ;; esac; done"),
    ] {
        executable(&folder.join("bin").join(tool), &format!("#!/bin/sh\n{broken}\n"));
    }
    let ran = sh(&folder, "PATH=$PWD/bin:$PATH; ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got '*'");
    assert_eq!(ran.status, 1, "{}", ran.err);
    assert_eq!(files(&folder.join("got")).into_iter().filter(|name| !name.starts_with(".part-pull")).count(), 3, "{}", ran.err);
    for (name, ok) in [("large", false), ("small", false), ("deep/other", true), ("same", true)] {
        assert!(ran.out.contains(&format!("\"src\":\"{name}\",\"dst\":\"got/{name}\",\"ok\":{ok}")), "{name}: {}", ran.out);
        assert_eq!(folder.join("got").join(name).exists(), ok, "{name}");
    }
    assert_eq!(ran.err.matches("could not be read whole there").count(), 2, "{}", ran.err);
    assert_eq!(fs::read_to_string(folder.join("got/same")).unwrap(), "other");
}

#[test]
fn results_come_back_as_they_are() {
    if takes_seconds() {
        return;
    }
    let folder = scratch("pull");
    fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    let ws = folder.join("ws");
    fs::create_dir_all(ws.join("logs/deep")).unwrap();
    let odd = OsStr::from_bytes(b"two  words\n$(touch pwned) it's \xff");
    for (name, content) in [("logs/a.log", "a"), ("logs/deep/b.log", ""), ("logs/-c.log", "c"), ("secret", "s")] {
        fs::write(ws.join(name), content).unwrap();
    }
    fs::write(ws.join("logs").join(odd), "odd").unwrap();
    let large: Vec<u8> = (0..20_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take(40 << 20).collect();
    fs::write(ws.join("model.pt"), &large).unwrap();
    symlink("/etc/passwd", ws.join("logs/link.log")).unwrap();
    sh(&folder, "chmod 640 ws/logs/a.log; touch -d '2001-02-03 04:05:06.123456789' ws/logs/a.log");

    let dry = pull(&folder, "--dry-run 'logs/*.log'");
    assert!(dry.status == 0 && dry.out.contains("logs/a.log") && !folder.join("got").exists(), "{}{}", dry.out, dry.err);
    let got = pull(&folder, "'logs/*.log'");
    assert_eq!(got.status, 0, "{}", got.err);
    assert_eq!(files(&folder.join("got")), ["logs/-c.log", "logs/a.log"].map(PathBuf::from));
    let (there, here) = (fs::metadata(ws.join("logs/a.log")).unwrap(), fs::metadata(folder.join("got/logs/a.log")).unwrap());
    assert_eq!((there.mode(), there.mtime(), there.mtime_nsec()), (here.mode(), here.mtime(), here.mtime_nsec()));

    let all = pull(&folder, "logs model.pt");
    assert_eq!(all.status, 0, "{}", all.err);
    let expected = ["logs/-c.log", "logs/a.log", "logs/deep/b.log"].map(PathBuf::from).into_iter();
    let expected: Vec<PathBuf> = expected.chain([Path::new("logs").join(odd), "model.pt".into()]).collect();
    assert_eq!(files(&folder.join("got")), expected, "no link is followed, nothing else is brought");
    assert!(fs::read(folder.join("got/model.pt")).unwrap() == large && fs::read(folder.join("got/logs").join(odd)).unwrap() == b"odd");
    assert!(!folder.join("pwned").exists() && !ws.join("pwned").exists());
    let again = pull(&folder, "logs model.pt");
    assert!(again.status == 0 && again.out.matches("\"skipped\":true").count() == 5, "{}{}", again.out, again.err);

    // a large file that broke off goes on there at a whole block, if what is here is what it begins with
    for (flip, received) in [(0u8, (40 << 20) - 5_000_000 / 65_536 * 65_536), (1, 40 << 20)] {
        let fault = sh(
            &folder,
            "rm got/model.pt; ulimit -f 10000; ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got model.pt",
        );
        assert_ne!(fault.status, 0);
        // one that was killed leaves its lock too, which nobody holds
        let ours = |name: &PathBuf| name.to_string_lossy().starts_with(".part-pull") && name != Path::new(".part-pull.lock");
        let begun: Vec<_> = files(&folder.join("got")).into_iter().filter(ours).collect();
        assert_eq!(begun.len(), 1, "{}", fault.err);
        let begun = folder.join("got").join(&begun[0]);
        let mut content = large[..5_000_000].to_vec();
        content[77] ^= flip;
        fs::write(&begun, content).unwrap();
        let rest = pull(&folder, "model.pt");
        assert!(rest.status == 0 && rest.out.contains(&format!("\"received_bytes\":{received}")), "{}{}", rest.out, rest.err);
        assert!(fs::read(folder.join("got/model.pt")).unwrap() == large && !begun.exists());
    }

    for (options, status, why) in [
        ("nothing", 1, "no host has a file that matches nothing"),
        ("../x", 2, "is not a path below the workspace"),
        ("--workspace /no/such/folder x", 2, "cannot be used multiple times"),
    ] {
        let bad = pull(&folder, options);
        assert!(bad.status == status && bad.err.contains(why), "{options}: {} {}", bad.status, bad.err);
    }
    let nowhere = sh(&folder, "ipconf-check ip.txt | part-pull --connect local --workspace /no/such/folder --to got x");
    assert!(nowhere.status == 74 && nowhere.err.contains("there is no folder") && nowhere.out.contains("\"ok\":false"), "{}", nowhere.err);
}

#[test]
fn a_large_file_comes_over_several_connections() {
    if takes_seconds() {
        return;
    }
    let folder = scratch("pull-streams");
    fs::create_dir(folder.join("ws")).unwrap();
    fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    let large: Vec<u8> = (0..20_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).take((40 << 20) + 12_345).collect();
    fs::write(folder.join("ws/model.pt"), &large).unwrap();
    fs::write(folder.join("ws/first"), "small").unwrap();
    executable(&folder.join("way"), "#!/bin/sh\necho x >>way.log\nexec \"$@\"\n");
    // the third connection breaks off
    executable(
        &folder.join("cut"),
        "#!/bin/sh\n./way true\n[ $(wc -l <way.log) = 3 ] || exec \"$@\"\n\"$@\" 2>&- | { dd bs=4096 count=500; kill $$; }\n",
    );
    let pull = |way: &str, options: &str| {
        let _ = fs::remove_file(folder.join("way.log"));
        // the home of the host
        let ran =
            format!("ipconf-check ip.txt | HOME=$PWD part-pull --connect './{way} env' --workspace '~/ws' --to got {options} model.pt");
        let ran = sh(&folder, &ran);
        (ran, fs::read_to_string(folder.join("way.log")).unwrap().lines().count())
    };
    for (options, connections) in [("", 1), ("--streams 1", 1), ("--streams 3", 3), ("--streams 8", 8)] {
        let _ = fs::remove_dir_all(folder.join("got"));
        let (ran, made) = pull("way", options);
        assert_eq!((ran.status, made), (0, connections), "{options}: {}", ran.err);
        assert!(fs::read(folder.join("got/model.pt")).unwrap() == large, "{options}: other bytes came");
        assert_eq!(files(&folder.join("got")), [PathBuf::from("model.pt")], "{options}");
    }

    let begun = || {
        let names = files(&folder.join("got")).into_iter().map(|name| name.into_os_string().into_string().unwrap());
        names.filter(|name| name.starts_with(".part-pull.")).collect::<Vec<_>>()
    };
    let _ = fs::remove_file(folder.join("got/model.pt"));
    let (broken, _) = pull("cut", "--streams 3 first");
    assert!(broken.out.contains("\"dst\":\"got/first\",\"ok\":true") && folder.join("got/first").exists(), "{}", broken.out);
    assert!(broken.status == 74 && broken.out.contains("\"ok\":false") && broken.err.contains("connection lost"), "{}", broken.err);
    assert!(!folder.join("got/model.pt").exists() && begun().len() == 2, "{:?}", files(&folder.join("got")));
    // as one that was killed in its second round leaves it: what is whole, and behind that whatever there is
    let [part, good] = begun().try_into().unwrap();
    let mut content = large.clone();
    content[4_194_304..].fill(7);
    fs::write(folder.join("got").join(part), content).unwrap();
    fs::write(folder.join("got").join(good), "4194304").unwrap();
    let (rest, _) = pull("way", "--streams 3");
    let received = format!("\"received_bytes\":{}", large.len() - 4_194_304);
    assert!(rest.status == 0 && rest.out.contains(&received), "{}{}", rest.out, rest.err);
    assert!(fs::read(folder.join("got/model.pt")).unwrap() == large && begun().is_empty());
}

#[test]
fn two_that_bring_files_to_one_folder_take_turns() {
    if takes_seconds() {
        return;
    }
    let folder = scratch("pull-turns");
    fs::create_dir_all(folder.join("ws")).unwrap();
    fs::create_dir_all(folder.join("got")).unwrap();
    fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    fs::write(folder.join("ws/a"), "a").unwrap();
    // one that is ended while it waits touches nothing
    let ended = "sh -c 'exec 9>got/.part-pull.lock; flock 9; : >held; exec sleep 30' & holder=$!; until [ -e held ]; do sleep 0.1; done
        ipconf-check ip.txt | timeout -s TERM 5 part-pull --connect local --workspace \"$PWD/ws\" --to got a; echo $?; kill $holder";
    let ran = sh(&folder, ended);
    assert!(
        ran.out.contains("\"ok\":false") && ran.out.ends_with("\n124\n") && ran.err.contains("waiting for its end"),
        "{}{}",
        ran.out,
        ran.err
    );
    let held = "flock -x got/.part-pull.lock sh -c 'echo; sleep 1; [ ! -e got/a ] && echo alone >&2' | { read _;";
    let ran = sh(&folder, &format!("{held} ipconf-check ip.txt | part-pull --connect local --workspace \"$PWD/ws\" --to got a; }}"));
    assert!(ran.status == 0 && ran.err.contains("waiting for its end") && ran.err.contains("alone"), "{}", ran.err);
    assert_eq!(files(&folder.join("got")), [PathBuf::from("a")]);
}

#[test]
fn real_hosts_give_back_what_they_have() {
    let folder = scratch("pull-hosts");
    let cluster = Cluster::up("pull", 3);
    fs::write(folder.join("ip.txt"), "10.77.0.2\n10.77.0.3\n").unwrap();
    for host in [2, 3] {
        let ws = cluster.0.join(format!("h{host}/srv/ws/out"));
        fs::create_dir_all(&ws).unwrap();
        for k in 0..1500 {
            fs::write(ws.join(format!("{k}.log")), format!("{host} {k}")).unwrap();
        }
    }
    let got = cluster.sh(&folder, "ipconf-check ip.txt | part-pull --workspace /srv/ws --to got out");
    assert_eq!(got.status, 0, "{}", got.err);
    assert!(got.out.matches("\"type\":\"pulled\"").count() == 3000 && !got.out.contains("\"ok\":false"));
    for (host, id) in [(2, 0), (3, 1)] {
        assert_eq!(files(&folder.join(format!("got/h{id}"))).len(), 1500);
        assert_eq!(fs::read_to_string(folder.join(format!("got/h{id}/out/1499.log"))).unwrap(), format!("{host} 1499"));
    }
    // one host down: the other's files come, and the stream says so
    cluster.call(&["stop", "3"]);
    let down = cluster.sh(&folder, "rm -rf got; ipconf-check ip.txt | part-pull --connect-timeout 5s --workspace /srv/ws --to got out");
    assert!(down.status == 74 && down.err.contains("host 1 (10.77.0.3)"), "{} {}", down.status, down.err);
    assert!(files(&folder.join("got/h0")).len() == 1500 && down.out.matches("\"ok\":false").count() == 1);
    let one = cluster.sh(&folder, "rm -rf got; ipconf-check ip.txt | part-pull --host 0 --workspace /srv/ws --to got 'out/1*.log'");
    assert!(one.status == 0 && folder.join("got/out/1.log").exists() && !folder.join("got/out/2.log").exists(), "{}", one.err);
    cluster.assert_clean();
}
