//! Six generations of DGL on real hosts: each loads and trains on what part-map and part-push made
//! of its own partitions. `make test-versions` runs it, for the versions in DGL_VERSIONS; gigabytes
//! of packages go into the user's cache the first time.

use std::path::Path;
use std::process::Command;
use support::{Cluster, Ran, ran, root, scratch, sh, write};

/// A graph that a version is tried with.
struct Graph {
    name: &'static str,
    /// Options of partition.py.
    made_with: &'static str,
    /// The versions that can make it, from and to.
    versions: [&'static str; 2],
    /// train.py knows graphs of one type of nodes.
    train: bool,
}

const GRAPHS: [Graph; 4] = [
    Graph {
        name: "one type",
        made_with: "",
        versions: ["0.5", "9"],
        train: true,
    },
    Graph {
        name: ".npy maps",
        made_with: "--no-reshuffle",
        versions: ["0.5", "0.9.9"],
        train: true,
    },
    Graph {
        name: "graphbolt",
        made_with: "--graphbolt",
        versions: ["2.1", "9"],
        train: false,
    },
    Graph {
        name: "two types",
        made_with: "--types 2",
        versions: ["0.6", "9"],
        train: false,
    },
];

const HOSTS: u32 = 2;

#[test]
#[ignore = "make test-versions runs it: minutes, and gigabytes of packages"]
fn every_version_on_real_hosts() {
    let versions =
        std::env::var("DGL_VERSIONS").unwrap_or_else(|_| "0.5.3 0.6.1 0.9.1 1.0.4".to_owned());
    let cluster = Cluster::up(HOSTS);
    let mut ports = (30050..).step_by(10);
    for version in versions.split_whitespace() {
        let python = ran(Command::new(root().join("tests/dgl/version.sh"))
            .arg(version)
            .output()
            .unwrap());
        assert_eq!(python.status, 0, "DGL {version}: {}", python.err);
        for graph in GRAPHS
            .iter()
            .filter(|graph| (graph.versions[0]..=graph.versions[1]).contains(&version))
        {
            let folder = scratch();
            // the connections of a job of DGL 0.5 linger on its port for a minute, and let no later
            // job have it, of no version
            for (name, port) in ["ip.txt", "ip2.txt"].into_iter().zip(&mut ports) {
                let hosts = (1..=HOSTS).map(|host| format!("10.77.0.{host} {port}\n"));
                write(&folder, name, hosts.collect::<String>());
            }
            let begun = std::time::Instant::now();
            one(&cluster, &folder, version, python.out.trim(), graph);
            println!(
                "DGL {version}, {}: {} s",
                graph.name,
                begun.elapsed().as_secs()
            );
        }
    }
    cluster.assert_clean();
}

fn one(cluster: &Cluster, folder: &Path, version: &str, python: &str, graph: &Graph) {
    let what = format!("DGL {version}, {}", graph.name);
    let well = |step: &str, got: Ran| {
        assert_eq!(got.status, 0, "{what}: {step}: {}{}", got.out, got.err);
        got
    };
    let scripts = root().join("tests/dgl");
    let made = format!(
        "DGLBACKEND=pytorch '{python}' '{}/partition.py' --out out --num-parts {HOSTS} \
         --num-nodes 600 {}",
        scripts.display(),
        graph.made_with
    );
    well("partitioning", sh(folder, &made));
    // 0.5 looks for the files of a part in the working directory, later versions in the config's
    // directory
    let (paths, config) = if version.starts_with("0.5") {
        ("workspace", "g.json")
    } else {
        ("config", "data/g.json")
    };
    let copy = format!(
        "rm -rf /srv/job; ipconf-check ip.txt | host-probe --python '{python}' | part-map \
         --part-config out/g.json --workspace /srv/job \
         --paths {paths} --script-folder '{}' | part-push >pushed.jsonl",
        scripts.display()
    );
    well("copying", cluster.sh(folder, &copy));
    let load = format!(
        "<pushed.jsonl dgl-env --role worker -- '{python}' dgl/load.py {config} {HOSTS} | \
         dgl-spawn --format human"
    );
    let loaded = well("loading", cluster.sh(folder, &load));
    assert_eq!(
        loaded.out.matches("loaded part").count(),
        HOSTS as usize,
        "{what}: {}",
        loaded.out
    );
    if graph.train {
        let train = format!(
            "<pushed.jsonl dgl-env --num-trainers 1 --num-omp-threads 1 -- '{python}' \
             dgl/train.py --ip-config ip_config.txt \
             --part-config {config} --num-epochs 3 | dgl-spawn --format human"
        );
        let trained = well("training", cluster.sh(folder, &train));
        assert!(
            trained.out.contains("loss fell from"),
            "{what}: {}",
            trained.out
        );
    }
    if graph.name == "one type" {
        // the lines of DGL's own scripts, as this generation takes them, unchanged but for the
        // program's name
        let copy = format!(
            "rm -rf /srv/job; dgl-copy --workspace /srv/job --rel_data_path data --part_config \
             out/g.json --ip_config ip2.txt --script_folder '{}'",
            scripts.display()
        );
        well("dgl-copy", cluster.sh(folder, &copy));
        let flags = match version {
            "0.5.3" => "",
            "0.6.1" => "--num_omp_threads 1",
            _ => "--num_omp_threads 1 --graph_format csc --extra_envs DGL_LOG_DEBUG=0",
        };
        let launch = format!(
            "dgl-launch --workspace /srv/job --num_trainers 1 --num_samplers 0 --part_config \
             data/g.json --ip_config ip2.txt --num_servers 1 {flags} \
             '{python} dgl/train.py --ip-config ip2.txt --part-config data/g.json --num-epochs 3'"
        );
        let trained = well("dgl-launch", cluster.sh(folder, &launch));
        assert!(
            trained.out.contains("loss fell from"),
            "{what}: dgl-launch: {}",
            trained.out
        );
    }
}
