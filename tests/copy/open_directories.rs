//! Directories that other users may write to: a name in one proves nothing. Whatever others rename
//! and link there, nothing outside is read, written, removed or given another mode.

use crate::lab::tree;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use support::{OpenFolder, Ran, make_folder, noise, only_root_can, read, sh, write};

const OTHER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

/// A directory `src`, a plan that brings it to the workspace `open/ws` of this machine, and
/// directories of the user's beside that. Everybody can write in `open` and `open/ws`.
fn lab() -> OpenFolder {
    let folder = OpenFolder::new("open");
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "src/large", noise(1, 3 << 20));
    write(&folder, "src/small", "small");
    write(&folder, "home/secret", "secret");
    make_folder(&folder, "open/ws");
    sh(
        &folder,
        "chmod 777 open open/ws; chmod 600 home/secret; ipconf-check ip.txt | part-map --workspace \
         \"$PWD/open/ws\" --extra src >plan.jsonl",
    )
    .ends(0);
    folder
}

fn push(folder: &Path) -> Ran {
    sh(folder, "timeout 30 part-push --connect local <plan.jsonl")
}

fn pull(folder: &Path, to: &str) -> Ran {
    let script = format!(
        "ipconf-check ip.txt | timeout 30 part-pull --connect local --workspace \"$PWD/src\" --to \
         {to} '*'"
    );
    sh(folder, &script)
}

/// Another user may give the name of a lock to any file of the user's in the directory.
#[test]
fn a_file_with_the_name_of_a_lock_stays_as_it_is() {
    let table = [
        (
            "of a mode that others cannot read",
            "cp -p home/secret",
            0o600,
        ),
        ("a hard link", "ln home/secret", 0o600),
        ("a readable one", "install -m 644 home/secret", 0o644),
    ];
    for (what, lays, mode) in table {
        let folder = lab();
        // more than a lock has in it
        write(
            &folder,
            "home/secret",
            "secret words, on more than one line\n",
        );
        let lay = format!("{lays} open/ws/.part-push.lock; {lays} open/.part-pull.lock");
        sh(&folder, &lay).ends(0);
        let is_untouched = |name: &str| {
            let meta = fs::metadata(folder.join(name)).unwrap();
            assert_eq!(meta.mode() & 0o777, mode, "{what}: {name}");
            assert!(
                read(&folder, name).starts_with("secret words"),
                "{what}: {name}"
            );
        };
        let why = "a file that is not a lock has the name of the lock";
        assert_ne!(push(&folder).err_has(why).status, 0, "{what}");
        is_untouched("open/ws/.part-push.lock");
        assert_ne!(pull(&folder, "open").err_has(why).status, 0, "{what}");
        is_untouched("open/.part-pull.lock");
    }
}

/// A lock that a killed process left is removed, and that of a living one is not.
#[test]
fn a_lock_that_nobody_holds_is_replaced() {
    let folder = lab();
    write(
        &folder,
        "open/ws/.part-push.lock",
        "0123456789abcdef0123456789abcdef",
    );
    write(
        &folder,
        "open/.part-pull.lock",
        "0123456789abcdef0123456789abcdef",
    );
    push(&folder).ends(0);
    pull(&folder, "open").ends(0);
    sh(&folder, "ls -A open open/ws | grep lock").ends(1);
}

/// The mark alone does not make a file part-push's own.
#[test]
fn only_files_with_names_of_part_push_are_removed() {
    let folder = lab();
    let names = [
        "one-hot.npy",
        "owner.csv",
        "part.final",
        "good.reasons",
        "thesis.txt",
    ];
    for own in [".part-push.dead.0", ".part-push.kept"] {
        for name in names.iter().chain(&[".made-by-part-push"]) {
            write(&folder, format!("open/ws/{own}/{name}"), "mine");
        }
        let all = format!("cd open/ws/{own} && chmod 700 . && touch -d 2001-01-01 *");
        sh(&folder, &all).ends(0);
    }
    push(&folder).ends(0);
    for own in [".part-push.dead.0", ".part-push.kept"] {
        for name in names {
            assert_eq!(
                read(&folder, format!("open/ws/{own}/{name}")),
                "mine",
                "{own}"
            );
        }
    }
}

/// A link of the user's own leads where the user wants only if nobody else can have renamed it.
#[test]
fn a_link_that_others_can_rename_is_not_followed() {
    const RENAMED: &str = "in a directory in which other users can rename it";
    let folder = lab();
    make_folder(&folder, "bin");
    symlink("../bin", folder.join("open/tools")).unwrap();
    assert_ne!(pull(&folder, "open/tools").err_has(RENAMED).status, 0);
    let plan = "sed -i \"s|/open/ws|/open/tools|g\" plan.jsonl";
    sh(&folder, plan).ends(0);
    assert_ne!(push(&folder).err_has(RENAMED).status, 0);
    assert!(tree(&folder.join("bin")).is_empty());
    // below the workspace
    make_folder(&folder, "open/ws/real");
    symlink("real", folder.join("open/ws/src")).unwrap();
    sh(&folder, "sed -i \"s|/open/tools|/open/ws|g\" plan.jsonl").ends(0);
    push(&folder).ends(1).err_has(RENAMED);
    assert!(tree(&folder.join("open/ws/real")).is_empty());
    // with the sticky bit, only the owner of the link renames it
    sh(&folder, "chmod +t open open/ws").ends(0);
    push(&folder).ends(0);
    assert_eq!(read(&folder, "open/ws/real/small"), "small");
    pull(&folder, "open/tools").ends(0);
    assert_eq!(read(&folder, "bin/small"), "small");
}

/// The other user puts a directory of the user's into the place of each that part-push makes.
#[test]
fn slow_a_directory_that_another_user_swaps_in_loses_nothing() {
    if only_root_can("act as another user") {
        return;
    }
    let folder = lab();
    write(&folder, "swap.py", SWAP);
    sh(
        &folder,
        &format!("chmod a+r swap.py; cp swap.py open; {OTHER} true"),
    )
    .ends(0);
    let widened = |call: &str| {
        format!("strace -f -qq -o /dev/null -e trace={call} -e inject={call}:delay_enter=20000 env")
    };
    let mut ways = vec!["local".to_owned(); 4];
    if sh(&folder, &format!("{} true", widened("mkdirat"))).status == 0 {
        // each window between two system calls of the host is 20 ms wide
        let calls = [
            "mkdirat",
            "renameat,renameat2",
            "linkat",
            "unlinkat",
            "openat",
        ];
        ways.extend(
            calls
                .into_iter()
                .flat_map(|call| [widened(call), widened(call)]),
        );
    }
    for (round, way) in ways.into_iter().enumerate() {
        make_folder(&folder, "open/ws/results");
        for name in ["thesis.txt", "model.pt", "one", "owner.csv", "part.final"] {
            write(&folder, format!("open/ws/results/{name}"), "mine");
        }
        sh(
            &folder,
            &format!(
                "chmod 755 open/ws/results; touch -d 2001-01-01 open/ws/results/*
                 ({OTHER} timeout 60 python3 open/swap.py open/ws & echo $! >swapper; wait) & \
                 timeout 60 part-push --connect '{way}' <plan.jsonl >out 2>err; rm -f open/ws/go; \
                 touch open/ws/stop; wait; rm open/ws/stop"
            ),
        );
        let mine = sh(
            &folder,
            "grep -rslx mine open/ws | wc -l; grep -rlZ mine open/ws",
        )
        .out;
        assert!(
            mine.starts_with("5\n") || mine.starts_with("4\n"),
            "{round} {way}: {mine}"
        );
        for name in ["thesis.txt", "model.pt", "owner.csv", "part.final"] {
            assert!(mine.contains(name), "{round} {way}: {name}: {mine}");
        }
        sh(&folder, "rm -rf open/ws/* open/ws/.part-push*").ends(0);
    }
}

/// The other user puts something of the user's into the place of everything that a tool makes in
/// the directory: a directory, a link to one, another name of a file, a link to it. A directory
/// that lies in the open one can become the directory that the tool was told to write to, of which
/// part-push warns; it has no file of such a name here.
#[test]
fn slow_what_another_user_swaps_in_stays_as_it_is() {
    const JOB: &str = "ipconf-check ip.txt | dgl-env --role worker -- true |";
    if only_root_can("act as another user") {
        return;
    }
    let table = [
        ("open/ws", "part-push --connect local <plan.jsonl"),
        (
            "open/to",
            "part-pull --connect local --workspace \"$PWD/src\" --to open/to '**' <hosts.jsonl",
        ),
        (
            "open/logs",
            "dgl-spawn --connect local --log-dir open/logs <job.jsonl",
        ),
    ];
    let calls = [
        "mkdirat",
        "renameat,renameat2",
        "linkat",
        "unlinkat",
        "fchmod",
    ];
    for (written, tool) in table {
        for call in calls {
            let folder = lab();
            write(&folder, "swap.py", SWAP_ALL);
            let prepare = format!(
                "ipconf-check ip.txt >hosts.jsonl; {JOB} cat >job.jsonl
                 mkdir -p {written}/results home/real && chmod 777 {written}
                 for name in run.jsonl worker-0.log thesis.txt; do
                     echo mine >{written}/results/$name; echo mine >home/real/$name
                 done
                 for name in one small large; do echo mine >home/real/$name; done
                 chmod 600 {written}/results/* home/real/*
                 ln home/secret {written}/hard; ln -s ../../home/secret {written}/link
                 ln -s ../../home/real {written}/to-real; chmod a+r swap.py; cp swap.py open
                 {tool} >out 2>err; rm -rf {written}/src {written}/large {written}/small"
            );
            sh(&folder, &prepare).ends(0);
            let before = sh(&folder, "stat -c '%a %s %n' home home/* home/real/*").out;
            // each window between two system calls is wider
            let widened = format!(
                "strace -f -qq -o /dev/null -e trace={call} -e \
                 inject={call}:delay_enter=5000:delay_exit=50000"
            );
            sh(
                &folder,
                &format!(
                    "({OTHER} timeout 60 python3 open/swap.py {written} & wait) &
                     until [ -e open/ready ]; do sleep 0.1; done
                     timeout 60 {widened} {tool} >out 2>err; touch open/stop; wait"
                ),
            );
            let after = sh(&folder, "stat -c '%a %s %n' home home/* home/real/*").out;
            assert_eq!(after, before, "{tool}, {call}");
            assert_eq!(read(&folder, "home/secret"), "secret", "{tool}, {call}");
            let mine = sh(&folder, "grep -rlx mine open home | wc -l").out;
            let results = sh(
                &folder,
                "find open home -size 5c -perm 600 -name '*.*' | wc -l",
            )
            .out;
            assert_eq!(mine, "9\n", "{tool}, {call}: {}", read(&folder, "err"));
            assert_eq!(results, "6\n", "{tool}, {call}");
        }
    }
}

/// Puts what is the user's own into the place of each new name.
const SWAP_ALL: &str = r#"
import os, sys
os.chdir(sys.argv[1])
folders, files, number = ["results", "to-real"], ["hard", "link"], 0
seen = set(os.listdir("."))
open("../ready", "w")
while not os.path.exists("../stop"):
    for name in os.listdir("."):
        if name in seen or name in folders + files or name.startswith("aside"):
            continue
        number += 1
        items = folders if os.path.isdir(name) else files
        item = items.pop(0)
        try:
            os.rename(name, f"aside{number}")
            os.rename(item, name)
            item = name
        except OSError:
            pass
        items.append(item)
"#;

/// Swaps `results` in for each directory of part-push that appears, under all its later names.
const SWAP: &str = r#"
import os, sys
os.chdir(sys.argv[1])
has = "results"
while not os.path.exists("stop"):
    for name in os.listdir("."):
        if name.startswith(".part-push.") and name.count(".") >= 3 and name != has:
            try:
                os.rename(name, "aside") if not name.endswith(".new") else os.rmdir(name)
            except OSError:
                pass
            try:
                os.rename(has, name)
                has = name
            except OSError:
                pass
"#;
