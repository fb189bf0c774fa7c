//! What the process tests share: plain `sh` with the tools that were built, hosts of their own, a graph to copy.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The folder of the tools that were built with this test.
pub fn tools() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().find(|folder| folder.join("dgl-spawn").is_file());
    folder.expect("the tools are not built: run `make test`").to_owned()
}

/// A folder of this test's own, empty; beside the tools, below target/.
pub fn scratch(name: &str) -> PathBuf {
    let folder = tools().with_file_name("tmp").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// How a script ended and what it wrote.
pub struct Ran {
    pub status: i32,
    pub out: String,
    pub err: String,
}

pub fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

pub fn path() -> String {
    format!("{}:{}", tools().display(), std::env::var("PATH").unwrap())
}

/// A script in plain `sh`, without pipefail, in a folder.
pub fn sh(folder: &Path, script: &str) -> Ran {
    ran(Command::new("timeout").args(["300", "sh", "-c", script]).current_dir(folder).env("PATH", path()).output().unwrap())
}

/// Hosts of our own; taken down at the end whatever happens.
pub struct Cluster(pub PathBuf);

impl Cluster {
    pub fn up(name: &str, hosts: u32) -> Cluster {
        Cluster::up_shaped(name, hosts, "")
    }

    /// With links of that rate, as tc writes it.
    pub fn up_shaped(name: &str, hosts: u32, rate: &str) -> Cluster {
        let lab = PathBuf::from(format!("/var/tmp/dgl-tools-test-{name}-{}", std::process::id()));
        let cluster = Cluster(lab);
        let up = cluster.call(&["up", &hosts.to_string(), rate]);
        assert_eq!(up.status, 0, "the cluster did not start: {}", up.err);
        cluster
    }

    pub fn call(&self, args: &[&str]) -> Ran {
        let script = root().join("tests/cluster/cluster.sh");
        ran(Command::new("timeout").arg("600").arg(script).args(args).env("LAB", &self.0).env("PATH", path()).output().unwrap())
    }

    /// A script on host 1, the launching machine, in a folder.
    pub fn sh(&self, folder: &Path, script: &str) -> Ran {
        self.call(&["exec", "1", "sh", "-c", &format!("cd '{}'; PATH='{}'; {script}", folder.display(), path())])
    }

    /// Nothing is left on any host, soon.
    pub fn assert_clean(&self) {
        for _ in 0..60 {
            if self.call(&["left"]).status == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(250));
        }
        panic!("left on the hosts:\n{}", self.call(&["left"]).out);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A partitioned graph as far as the planners look into it.
pub fn partition(folder: &Path, parts: u32) {
    let mut config = String::from(r#"{"graph_name":"g","num_nodes":1,"num_edges":1,"node_map":{"_N":[]},"edge_map":{}"#);
    config += &format!(",\"num_parts\":{parts}");
    for k in 0..parts {
        std::fs::create_dir_all(folder.join(format!("out/part{k}"))).unwrap();
        for name in ["node_feat", "edge_feat", "graph"] {
            std::fs::write(folder.join(format!("out/part{k}/{name}.dgl")), format!("{name} of part {k}")).unwrap();
        }
        config += &format!(
            r#","part-{k}":{{"node_feats":"part{k}/node_feat.dgl","edge_feats":"part{k}/edge_feat.dgl","part_graph":"part{k}/graph.dgl"}}"#
        );
    }
    std::fs::write(folder.join("out/g.json"), config + "}").unwrap();
    std::fs::create_dir_all(folder.join("code")).unwrap();
    std::fs::write(folder.join("code/run it.sh"), "cat \"data/part$RANK/graph.dgl\"; echo; echo \"$1\"\n").unwrap();
}

pub fn ip_config(folder: &Path, hosts: u32) {
    let text: String = (1..=hosts).map(|k| format!("10.77.0.{k}\n")).collect();
    std::fs::write(folder.join("ip.txt"), text).unwrap();
}
