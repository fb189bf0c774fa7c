//! DGL's own partitioning programs, tools/ of its repository, as the recipes of
//! dgl-tools-partition(7) and examples/partition run them: on two real hosts, and trained on from
//! where the partitions are. `make test-partitioning DGL_TOOLS=DIR` runs these tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use support::{Cluster, assert_has, made_by, read, root, scratch, sh};

/// The commands that a section of dgl-tools-partition(7) shows, one text for each display.
fn displays(section: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join("man/dgl-tools-partition.7")).unwrap();
    let (_, section) = page.split_once(&format!("\n.Ss {section}\n")).unwrap();
    let section = section.split("\n.Ss ").next().unwrap();
    let shown = section.split(".Bd -literal -offset indent\n").skip(1);
    let text = shown.map(|shown| shown.split("\n.Ed").next().unwrap());
    text.map(|text| text.replace("\n$ ", "\n").replace("\\e\n", "\\\n"))
        .map(|text| text.trim_start_matches("$ ").to_owned())
        .collect()
}

/// Two hosts, and a directory with what the recipes take for given.
struct Lab {
    cluster: Cluster,
    folder: PathBuf,
    python: String,
}

impl Lab {
    fn up() -> Lab {
        let python = made_by("tests/dgl/pipeline.sh", "Python for DGL's programs").unwrap();
        let tools = std::env::var("DGL_TOOLS").expect("DGL_TOOLS names tools/ of DGL's repository");
        let folder = scratch();
        symlink(tools, folder.join("tools")).unwrap();
        let lab = Lab {
            cluster: Cluster::up(2),
            folder,
            python,
        };
        let chunks = format!(
            "printf '10.77.0.1\\n10.77.0.2\\n' >ip_config.txt; cp -rL '{}' code; \
             PYTHONPATH=tools '{}' code/chunks.py 2",
            root().join("tests/dgl").display(),
            lab.python
        );
        lab.well(&chunks);
        lab
    }

    /// A command of the manual, for these hosts and this Python.
    fn here(&self, shown: &str) -> String {
        let nfs = self.folder.join("nfs").display().to_string();
        let python = &self.python;
        let train = "python3 code/train.py";
        let arguments = "--ip-config ip_config.txt --part-config data/g.json --num-epochs 2";
        shown
            .replace("10.0.0.", "10.77.0.")
            .replace("/nfs/pm/bin/pm_dglpart", "$(command -v pm_dglpart)")
            .replace("/nfs", &nfs)
            .replace("/data/job", "/srv/job")
            .replace("host-probe", &format!("host-probe --python {python}"))
            .replace("--num-trainers 2", "--num-trainers 1 --num-omp-threads 1")
            .replace("-timeout 1800", "-timeout 120 --save-orig-nids")
            .replace("dgl-spawn", "dgl-spawn --timeout 5m --format human")
            .replace(train, &format!("{train} {arguments}"))
            .replace("python3 ", &format!("{python} "))
    }

    /// A script on the first host that must end well.
    fn well(&self, script: &str) -> String {
        let script = format!("export DGLBACKEND=pytorch # or DGL writes to ~/.dgl\n{script}");
        let ran = self.cluster.sh(&self.folder, &script);
        ran.ends(0);
        ran.out
    }

    fn fails(&self, script: &str, problem: &str) {
        let ran = self.cluster.sh(&self.folder, script);
        assert!(
            ran.status != 0 && ran.err.contains(problem),
            "{script}: {} {}",
            ran.status,
            ran.err
        );
    }

    /// Has DGL partition the graph as `chunked/assignment` says, and trains on the partitions.
    fn partition_and_train(&self, recipe: &str) {
        for host in ["1", "2"] {
            self.cluster.call(&["exec", host, "rm", "-rf", "/srv/job"]);
        }
        let trained = self.well(&self.here(recipe));
        assert_has(&trained, "loss fell from");
        self.cluster.assert_clean();
        let copied = "cd /srv/job/chunked && find . -name '*[0-9].*' | sort";
        for (host, chunk) in [("1", "0"), ("2", "1")] {
            let there = self.cluster.call(&["exec", host, "sh", "-c", copied]);
            let expected = format!(
                "./edge_index/_N:_E:_N{chunk}.txt\n./node_data/_N/feat-{chunk}.npy\n\
                 ./node_data/_N/label-{chunk}.npy\n./node_data/_N/train_mask-{chunk}.npy\n"
            );
            assert_eq!(
                there.out, expected,
                "each host has the chunks that it reads"
            );
            let check = format!(
                "{} -c 'import dgl, numpy
wanted = numpy.loadtxt(\"/srv/job/chunked/assignment/_N.txt\", dtype=int)
found = dgl.data.utils.load_tensors(\"/srv/job/data/part{chunk}/orig_nids.dgl\")[\"_N\"]
assert sorted(found.tolist()) == numpy.flatnonzero(wanted == {chunk}).tolist()'",
                self.python
            );
            let got = self.cluster.call(&["exec", host, "sh", "-c", &check]);
            assert_eq!(got.status, 0, "partition {chunk}: {}", got.err);
        }
    }
}

/// The metadata, a random assignment, and the job, of the manual.
fn recipe() -> [String; 3] {
    let section = displays("A graph that no machine can partition");
    section.try_into().expect("three displays")
}

#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts"]
fn partitioned_by_dgl_and_trained_on_real_dgl_hosts() {
    let lab = Lab::up();
    let [metadata, random, job] = recipe();
    lab.well(&metadata);
    lab.well(&lab.here(&random));
    lab.partition_and_train(&job);
}

/// The directory of the test stands for storage that all hosts share.
#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts, mpirun and pm_dglpart"]
fn partitioned_by_parmetis_and_trained_on_real_dgl_hosts() {
    if sh(Path::new("/"), "command -v mpirun && command -v pm_dglpart").status != 0 {
        support::skipped!("mpirun and pm_dglpart are not both in PATH");
        return;
    }
    let lab = Lab::up();
    let [metadata, _, job] = recipe();
    lab.well(&format!(
        "{metadata}\nmkdir -p nfs/job && cp -r chunked nfs/job"
    ));
    let parmetis = read(&root(), "examples/partition/parmetis.sh");
    let message = lab.well(&format!(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n{}",
        lab.here(&parmetis)
    ));
    assert_has(&message, "gnvtxs: 400, gnedges: 3000");
    lab.well("mv nfs/job/chunked/assignment chunked");
    lab.partition_and_train(&job);
}

#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts"]
fn a_killed_stage_makes_the_next_refuse_on_real_dgl_hosts() {
    let lab = Lab::up();
    let [metadata, random, job] = recipe();
    lab.well(&metadata);
    lab.well(&lab.here(&random));
    let job = lab.here(&job);
    let (copy, rest) = job.split_once("dgl-env ").unwrap();
    let (pipeline, rest) = rest.split_once("ipconf-check").unwrap();
    let pipeline = format!("dgl-env {pipeline}");
    let (fetch, _) = rest.split_once("ipconf-check").unwrap();
    let fetch = format!("ipconf-check{fetch}");
    for (lines, problem) in [(0, "stdin"), (4, "file")] {
        let cut = format!("head -n {lines} | part-push");
        lab.fails(&copy.replace("part-push", &cut), problem);
    }
    lab.well(copy);
    lab.well("mv pushed.jsonl whole.jsonl; head -n -1 whole.jsonl >pushed.jsonl");
    lab.fails(&pipeline, "pushed");
    lab.well("mv whole.jsonl pushed.jsonl");
    // a process of the pipeline: the others are ended, and there is nothing to go on with
    let kill = "-- sh -c 'test $RANK = 0 || kill -9 $$; exec \"$@\"' sh ";
    lab.fails(
        &pipeline.replacen("-- ", kill, 1),
        "worker 1 ended by SIGKILL",
    );
    lab.cluster.assert_clean();
    lab.fails(&fetch, "data/metadata.json");
}
