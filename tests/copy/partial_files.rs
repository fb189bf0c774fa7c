//! Partial files of part-pull in a directory to which others can write.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use support::{OpenFolder, executable, noise, only_root_can, sh, soon, write};

const OTHER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

/// Pulls two files over a login that gives 2 MB of them and then waits for a file `on`.
const WAY: &str = "#!/bin/sh
\"$@\" | { dd bs=4096 count=512 2>&-; touch half; until [ -e on ]; do sleep 0.1; done; cat; }
";
const PULL: &str = "ipconf-check ip.txt | timeout 120 part-pull --connect './way env' --workspace \
     \"$PWD/ws\" --to got large small";

/// A workspace, and the directory `got` with this mode for its files.
fn lab(mode: u32) -> OpenFolder {
    let folder = OpenFolder::new("partial");
    write(&folder, "ip.txt", "127.0.0.1\n");
    write(&folder, "ws/large", noise(1, 17 << 20));
    write(&folder, "ws/small", "small");
    fs::create_dir(folder.join("got")).unwrap();
    fs::set_permissions(folder.join("got"), fs::Permissions::from_mode(mode)).unwrap();
    executable(&folder, "way", WAY);
    folder
}

/// All names with the beginning of part-pull's own, at any depth.
fn own(folder: &Path) -> Vec<PathBuf> {
    let found = sh(
        folder,
        "find got -name '.part-pull.*' ! -name '.part-pull.lock*'",
    )
    .out;
    found.lines().map(|line| folder.join(line)).collect()
}

/// What others can rename or make, in the place of a partial file, cannot be opened as one: partial
/// files are in a directory to which only this user can write, whatever the directory above allows.
#[test]
fn others_cannot_reach_a_partial_file() {
    for mode in [0o777, 0o1777] {
        let folder = lab(mode);
        let ran = std::thread::scope(|scope| {
            let pull = scope.spawn(|| sh(&folder, PULL));
            soon("the large file is on its way", || {
                pull.is_finished() || folder.join("half").exists() && !own(&folder).is_empty()
            });
            let own = own(&folder);
            for path in &own {
                let meta = fs::metadata(path).unwrap();
                assert!(meta.is_dir(), "{mode:o}: {}", path.display());
                assert_eq!(meta.mode() & 0o7777, 0o700, "{mode:o}: {}", path.display());
            }
            write(&folder, "on", "");
            assert!(!own.is_empty(), "{mode:o}");
            pull.join().unwrap()
        });
        ran.ends(0);
        sh(&folder, "cmp ws/large got/large; cmp ws/small got/small").ends(0);
        assert!(own(&folder).is_empty(), "{mode:o}");
    }
}

/// Directories that only look like part-pull's own: of another user, and of this user, renamed.
#[test]
fn a_directory_that_part_pull_has_not_made_is_left_alone() {
    if only_root_can("act as another user") {
        return;
    }
    let word = "0123456789abcdef0123456789abcdef";
    let folder = lab(0o777);
    write(&folder, "on", "");
    write(&folder, "thesis/0123456789abcdef.0123456789abcdef", "mine");
    let lays = format!(
        "chmod 700 thesis; mv thesis got/.part-pull.{word}
         {OTHER} sh -ec 'cd got; mkdir .part-pull.f{0}; touch .part-pull.f{0}/.made-by-part-pull'",
        &word[1..]
    );
    sh(&folder, &lays).ends(0);
    sh(&folder, PULL).ends(0);
    sh(&folder, "cmp ws/large got/large; cmp ws/small got/small").ends(0);
    let mine = format!("got/.part-pull.{word}/0123456789abcdef.0123456789abcdef");
    assert_eq!(fs::read(folder.join(mine)).unwrap(), b"mine");
    let meta = fs::metadata(folder.join("got/large")).unwrap();
    assert_eq!(meta.uid(), owner(&folder));
}

/// The owner of what this user makes.
fn owner(folder: &Path) -> u32 {
    fs::metadata(folder.join("ip.txt")).unwrap().uid()
}

/// A file system that shows every directory as writable for others: then each partial file has a
/// name that nobody knows, also if the directory has a file with the name of part-pull's mark.
#[test]
fn without_a_directory_of_their_own_partial_files_have_random_names() {
    let folder = lab(0o777);
    if sh(&folder, "strace -o /dev/null true").status != 0 {
        return support::skipped!("no strace here");
    }
    write(&folder, "ws/larger", noise(2, 18 << 20));
    write(&folder, "got/.made-by-part-pull", "");
    let pull = "ipconf-check ip.txt | strace -f -o trace -e trace=mkdirat,openat -e \
                inject=mkdirat:error=EACCES part-pull --connect local --workspace \"$PWD/ws\" --to \
                got large larger";
    sh(&folder, pull).ends(0);
    sh(&folder, "cmp ws/large got/large; cmp ws/larger got/larger").ends(0);
    let trace = fs::read_to_string(folder.join("trace")).unwrap();
    let made = trace.lines().filter(|line| line.contains("O_CREAT"));
    let names = made.filter_map(|line| line.split('"').nth(1));
    let partial: Vec<&str> = names
        .filter(|name| !name.starts_with('/') && !name.starts_with(".part-pull.lock"))
        .collect();
    let is_random = |name: &&str| {
        let word = name.strip_prefix(".part-pull.").unwrap_or_default();
        word.strip_suffix(".good").unwrap_or(word).len() == 32
    };
    assert!(
        partial.len() >= 2 && partial.iter().all(is_random),
        "{partial:?}"
    );
    assert!(own(&folder).is_empty());
}
