//! What the tests of this directory share: hosts between which files are copied, and what the
//! records say of each file.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use support::{Cluster, Ran, noise, scratch, soon, write};

/// Host 1 is the machine from which files go to the others.
pub struct Lab {
    pub cluster: Cluster,
    pub folder: PathBuf,
    /// What part-push and part-pull have in their environment.
    pub variables: &'static str,
}

impl Lab {
    /// All hosts but the first are to get `src/large`, with that content, and `src/small`.
    pub fn up(hosts: u32, rate: &str, large: &[u8]) -> Lab {
        let folder = scratch();
        let cluster = Cluster::up_shaped(hosts, rate);
        write(&folder, "src/large", large);
        write(&folder, "src/small", noise(2, 5000));
        let addresses: String = (2..=hosts)
            .map(|host| format!("10.77.0.{host}\n"))
            .collect();
        write(&folder, "ip.txt", addresses);
        let lab = Lab {
            cluster,
            folder,
            variables: "",
        };
        lab.map();
        lab
    }

    pub fn map(&self) {
        self.run("ipconf-check ip.txt | part-map --workspace /srv/ws --extra src >plan.jsonl");
    }

    pub fn sh(&self, script: &str) -> Ran {
        self.cluster.sh(&self.folder, script)
    }

    pub fn run(&self, script: &str) -> Ran {
        self.cluster.run(&self.folder, script)
    }

    /// On a host, with the right to change its network and its processes.
    pub fn on(&self, host: u32, command: &str) {
        write(&self.folder, "command", command);
        self.run(&format!(
            "ssh h{host} 'PATH=$PATH:/usr/sbin:/sbin; sh -s' <command"
        ));
    }

    pub fn push(&self, options: &str) -> Ran {
        self.push_within("30s", options)
    }

    pub fn push_within(&self, timeout: &str, options: &str) -> Ran {
        self.sh(&format!(
            "echo $$ >pid; export DGL_TOOLS_CONNECT_TIMEOUT={timeout} {}; exec part-push \
             {options} <plan.jsonl",
            self.variables
        ))
    }

    /// The workspace of a host, as this machine sees it.
    pub fn ws(&self, host: u32) -> PathBuf {
        self.cluster.lab.join(format!("h{host}/srv/ws"))
    }

    /// Whether a host has all that it is to get.
    pub fn has(&self, host: u32) -> bool {
        tree(&self.ws(host).join("src")) == tree(&self.folder.join("src"))
    }

    /// Files of a push that is at work on a host, by how their names begin.
    pub fn staged(&self, host: u32, beginning: &'static str) -> impl Iterator<Item = fs::DirEntry> {
        let stages = fs::read_dir(self.ws(host)).into_iter().flatten().flatten();
        let files =
            stages.flat_map(|stage| fs::read_dir(stage.path()).into_iter().flatten().flatten());
        files.filter(move |file| file.file_name().to_string_lossy().starts_with(beginning))
    }

    /// How much of the large file a host has that is not whole there.
    pub fn arrived(&self, host: u32) -> u64 {
        let parts = self.staged(host, "part.");
        let sizes = parts.filter_map(|part| Some(part.metadata().ok()?.len()));
        sizes.max().unwrap_or(0)
    }
}

/// Disturbs a copy once it has begun.
pub fn disturb(
    copy: impl FnOnce() -> Ran + Send,
    has_begun: impl Fn() -> bool,
    disturbance: impl FnOnce(),
) -> Ran {
    std::thread::scope(|scope| {
        let copy = scope.spawn(copy);
        soon("the large file is on its way", || {
            copy.is_finished() || has_begun()
        });
        if copy.is_finished() {
            panic!(
                "it ended before it was disturbed: {}",
                copy.join().unwrap().err
            );
        }
        disturbance();
        copy.join().unwrap()
    })
}

/// Every file below a directory, by its relative name; a link by where it leads.
pub fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let content = if kind.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_vec()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(path.strip_prefix(folder).unwrap().to_owned(), content);
        }
    }
    found
}

/// What a record says of a file and a host.
pub struct Copied {
    pub host: usize,
    pub ok: bool,
    pub bytes: u64,
    /// How many went over the wire.
    pub moved: u64,
    pub error: String,
}

/// The records of what was pushed or pulled, by host.
pub fn copied(out: &str) -> Vec<Copied> {
    let records = out.lines().filter_map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        let moved = match record["type"].as_str() {
            Some("pushed") => "sent_bytes",
            Some("pulled") => "received_bytes",
            _ => return None,
        };
        Some(Copied {
            host: usize::try_from(record["host"].as_u64().unwrap()).unwrap(),
            ok: record["ok"] == true,
            bytes: record["bytes"].as_u64().unwrap(),
            moved: record[moved].as_u64().unwrap(),
            error: record["error"].as_str().unwrap_or_default().to_owned(),
        })
    });
    let mut records: Vec<Copied> = records.collect();
    records.sort_by_key(|record| record.host);
    records
}

/// Of files with that many bytes: the host, whether all is well, and what went over the wire.
pub fn of_size(out: &str, bytes: usize) -> Vec<(usize, bool, u64)> {
    let records = copied(out).into_iter();
    let records = records.filter(|record| record.bytes == bytes as u64);
    records
        .map(|record| (record.host, record.ok, record.moved))
        .collect()
}
