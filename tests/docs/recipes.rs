//! The recipes of the manual, each run as it stands there: planners and gs-launch are real, what
//! reaches hosts is a stand-in that adds what hosts would say, and dgl-spawn only looks at the job.

use std::fs;
use std::path::{Path, PathBuf};
use support::{
    executable, make_folder, partition, read, recipe_commands, recipes_of, root, scratch, sh, write,
};

/// Sections that tests on real hosts run, or that run nothing.
const ELSEWHERE: &[(&str, &str)] = &[
    ("A jump host", "sets a variable"),
    ("A Slurm job", "slurm.rs"),
    ("A Slurm allocation, by hand", "slurm.rs"),
    ("A Slurm job of many nodes", "slurm.rs"),
    ("mpirun", "dial.rs"),
    ("A Kubernetes job with an index", "dial.rs"),
    ("Kubernetes", "containers.rs"),
    ("Containers", "containers.rs"),
    ("Memory, processors and GPUs over time", "programs.rs"),
    ("Where the time goes", "slow_jobs.txt"),
    ("Figures for Prometheus", "report.rs"),
    ("A rehearsal on this machine", "rehearsal.rs"),
    ("A graph in S3", "fetch.rs"),
    ("A graph in another object store", "fetch.rs"),
    ("Partitions on a web server", "fetch.rs"),
    ("A trainer that fails and does not end", "is Python"),
    ("A job that hangs", "stall.rs, why.rs"),
    ("A path that loses large packets", "preflight.rs"),
    ("Leave a job running (tmux, nohup, sbatch)", "leave.rs"),
];

const FACTS: &str = r#"{cpus: 8, gpus: 2, master_port: 29500, python: "3.8.1", dgl: "1.0.4",
    torch: "1.13.1", home: "/home/u", mem_bytes: 9e10, shm_free_bytes: 9e10}"#;

/// What part-push adds where all goes well.
const PUSHED: &str = r#"map(select(.type == "host").id) as $hosts | .[],
    ([.[] | select(.type == "file") | {file: .id, host: ((.host // $hosts[]))}] | length as $of |
    to_entries[] | {type: "pushed", id: .key, of: $of, ok: true, bytes: 0, sent_bytes: 0,
    elapsed_ms: 0} + .value)"#;

/// A directory with all that the recipes take for given, and stand-ins in `bin`.
pub fn prepared() -> PathBuf {
    let folder = scratch();
    partition(&folder, 2);
    write(
        &folder,
        "fits.jq",
        read(&root(), "examples/partition/fits.jq"),
    );
    let stand_in = |tool: &str, script: &str| {
        executable(&folder.join("bin"), tool, &format!("#!/bin/sh\n{script}\n"));
    };
    let facts = format!("exec jq -c 'if .type == \"host\" then . + {FACTS} else . end'");
    stand_in("host-probe", &facts);
    stand_in("part-push", &format!("exec jq -sc '{PUSHED}'"));
    for tool in ["part-pull", "dgl-reap", "dgl-stacks"] {
        stand_in(tool, "grep -c '\"type\":\"host\"' >/dev/null");
    }
    let real = support::tools().join("dgl-spawn");
    let spawn = format!("exec '{}' --dry-run --format human", real.display());
    stand_in("dgl-spawn", &spawn);
    stand_in("scontrol", "printf '10.0.0.1\\n10.0.0.2\\n'");
    stand_in("mpirun", "touch nfs/job/chunked/g_part.2");
    let metadata = r#"{"graph_name": "g", "node_type": ["n"], "num_nodes_per_chunk": [[20, 20]],
        "edge_type": ["n:e:n"], "num_edges_per_chunk": [[1, 1]],
        "edges": {"n:e:n": {"format": {"name": "csv"}, "data": ["e/0", "e/1"]}}}"#;
    make_folder(&folder, "chunked/e");
    write(&folder, "chunked/metadata.json", metadata);
    for program in [
        "partition_algo/random_partition.py",
        "distpartitioning/parmetis_postprocess.py",
    ] {
        let text = "import os; os.makedirs('chunked/assignment', exist_ok=True)\n";
        let program = folder.join("tools").join(program);
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(program, text).unwrap();
    }
    let script = "printf '10.0.0.1\n10.0.0.2\n' >ip_config.txt; cp ip_config.txt all-hosts.txt
        echo 10.0.0.9 >spares.txt; touch nc.yaml data.csv; echo 0 1 | tee chunked/e/0 >chunked/e/1
        mkdir -p ranks/rank=0 ranks/rank=1; echo 1 | tee ranks/rank=0/e >ranks/rank=1/e
        mkdir -p graph/part0 graph/part1; echo 1 | tee graph/META graph/part0/g >graph/part1/g
        printf 'ip,login\n10.0.0.1,a\n10.0.0.2,b\n' >hosts.csv
        mkdir -p nfs/job/chunked data/job; cp -r out nfs/job/data; cp -r out data/job/out
        cp -r out products
        cp -r out/. data; for folder in data data/job/out; do cp out/g.json $folder/metadata.json
        done";
    sh(&folder, script).ends(0);
    let before = "ipconf-check ip_config.txt | host-probe | part-map --part-config out/g.json \
        --workspace /data/job --script-folder code | tee plan.jsonl | part-push >pushed.jsonl
        dgl-env --num-trainers 2 -- python3 code/train.py <pushed.jsonl >job.jsonl";
    assert_eq!(run(&folder, before), (0, String::new()));
    folder
}

/// What a script does with the stand-ins: its status, and what it says if that is not 0.
pub fn run(folder: &Path, script: &str) -> (i32, String) {
    let ran = sh(folder, &format!("set -e; PATH=$PWD/bin:$PATH\n{script}"));
    let message = if ran.status == 0 {
        String::new()
    } else {
        ran.err
    };
    (ran.status, message)
}

/// The pages with recipes, and the section that holds them.
const PAGES: [(&str, &str); 6] = [
    ("dgl-tools", "EXAMPLES"),
    ("dgl-tools-clusters", "EXAMPLES"),
    ("dgl-tools-connect", "EXAMPLES"),
    ("dgl-tools-jobs", "EXAMPLES"),
    ("dgl-tools-partition", "EXAMPLES"),
    ("dgl-tools-trouble", "SYMPTOMS"),
];

/// Scripts of examples/ that pages point to; glt.rs runs servers.sh, which needs three hosts.
const SCRIPTS: [&str; 2] = ["examples/glt/workers.sh", "examples/partition/parmetis.sh"];

/// All recipes, in the order of [`PAGES`], and the [`SCRIPTS`].
fn sections() -> Vec<(String, String)> {
    let recipes = |(page, section): (&str, &str)| recipes_of(page, section);
    let scripts = SCRIPTS.map(|path| (path.to_owned(), read(&root(), path)));
    PAGES.into_iter().flat_map(recipes).chain(scripts).collect()
}

#[test]
fn slow_each_recipe_is_a_job_or_stands_in_another_test() {
    let sections = sections();
    for (name, where_else) in ELSEWHERE {
        let is_there = sections.iter().any(|(other, _)| other == name);
        assert!(is_there, "{name} ({where_else}) is no section");
    }
    let mut tried = 0;
    for (name, shown) in sections {
        if ELSEWHERE.iter().any(|(other, _)| *other == name) || shown.is_empty() {
            continue;
        }
        let folder = prepared();
        let script = recipe_commands(&shown, &folder);
        assert_eq!(
            run(&folder, &script),
            (0, String::new()),
            "{name}:\n{script}"
        );
        tried += 1;
    }
    assert!(tried >= 20, "{tried}");
}

#[test]
fn the_recipe_of_sizes_names_each_host_that_is_too_small() {
    let folder = prepared();
    let sections = recipes_of("dgl-tools-partition", "EXAMPLES");
    let (_, shown) = sections
        .iter()
        .find(|(name, _)| name == "Partitions that fit their hosts")
        .unwrap();
    let small = "exec jq -c 'if .id == 1 then . + {mem_bytes: 9e10, mem_limit_bytes: 2e9,
        shm_free_bytes: 10} else . + {mem_bytes: 9e10, shm_free_bytes: 9e10} end
        | .home = \"/u\"'";
    executable(
        &folder.join("bin"),
        "host-probe",
        &format!("#!/bin/sh\n{small}\n"),
    );
    let script = recipe_commands(shown, &folder);
    let script = format!("rm pushed.jsonl; truncate -s 1G out/part*/node_feat.dgl; {script}");
    let problem = "host 1 (10.0.0.2): needs 6.15 GB of memory; it has 2 GB\n\
        host 1 (10.0.0.2): needs 1.07 GB of /dev/shm; it has 0 GB\n";
    assert_eq!(run(&folder, &script), (1, problem.to_owned()));
    assert!(!folder.join("pushed.jsonl").exists());
}
