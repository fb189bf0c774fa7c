//! DGL's distributed partitioning pipeline, tools/distpartitioning of its repository, through
//! part-assign, chunk-map and the others: on two real hosts, and trained on from where the parts
//! lie. `make test-partitioning DGL_TOOLS=DIR` runs it.

use std::fs;
use std::path::Path;
use std::process::Command;
use support::{Cluster, ran, root, scratch, sh};

/// A script on the first host that must end well.
fn well(cluster: &Cluster, folder: &Path, script: &str) -> String {
    let ran = cluster.sh(folder, script);
    assert_eq!(ran.status, 0, "{script}\n{}\n{}", ran.out, ran.err);
    ran.out
}

/// A Python with DGL and pyarrow, and a graph in chunks in a folder.
fn prepare(cluster: &Cluster, folder: &Path) -> String {
    let made = Command::new(root().join("tests/graphstorm/python.sh"))
        .output()
        .unwrap();
    let made = ran(made);
    made.ends(0);
    let python = made.out.trim().to_owned();
    let dgl = std::env::var("DGL_TOOLS").expect("DGL_TOOLS names tools/ of DGL's repository");
    let scripts = root().join("tests/dgl");
    let make = format!(
        "printf '10.77.0.1\\n10.77.0.2\\n' >ip_config.txt; \
         cp -rL '{dgl}/distpartitioning' '{}' . && \
         '{python}' '{}/chunks.py' .",
        scripts.display(),
        scripts.display()
    );
    well(cluster, folder, &make);
    let push = "ipconf-check ip_config.txt | part-map --workspace /srv/job --script-folder \
        distpartitioning --script-folder dgl | part-push";
    well(cluster, folder, push);
    python
}

const COPY: &str = "ipconf-check ip_config.txt | host-probe --workspace /srv/job | \
    chunk-map --metadata chunked/metadata.json --assignment parts --workspace /srv/job";

fn pipeline(python: &str) -> String {
    format!(
        "dgl-env --role worker -- {python} distpartitioning/data_proc_pipeline.py --world-size \
         {{world_size}} --num-parts 2 --graph-name g --input-dir /srv/job/chunks --schema \
         metadata.json --partitions-dir assignment --output /srv/job/data --save-orig-nids \
         --process-group-timeout 120 <pushed.jsonl | dgl-spawn --timeout 5m --format human"
    )
}

const FETCH: &str = "ipconf-check ip_config.txt | \
    part-pull --workspace /srv/job --host 0 --to . data/metadata.json";

/// Has DGL partition the graph as that assignment says, and trains on the parts.
fn partition_and_train(cluster: &Cluster, folder: &Path, python: &str, how: &str) {
    let assign = "part-assign --metadata chunked/metadata.json --num-parts 2 --to parts";
    let counts = well(cluster, folder, &format!("{assign} {how}"));
    assert_eq!(counts.lines().count(), 2, "{counts}");
    for host in ["1", "2"] {
        let made = ["/srv/job/data", "/srv/job/chunks"];
        cluster.call(&["exec", host, "rm", "-rf", made[0], made[1]]);
    }
    let copy = format!("{COPY} | part-push >pushed.jsonl");
    well(cluster, folder, &copy);
    let there = cluster.call(&["exec", "2", "ls", "/srv/job/chunks/edges"]);
    assert_eq!(
        there.out, "2.csv\n3.csv\n",
        "each host has the chunks that it reads"
    );
    well(cluster, folder, &pipeline(python));
    cluster.assert_clean();

    // each part has the nodes that were to go there
    let check = format!(
        "{python} -c 'import dgl, numpy
wanted = numpy.loadtxt(\"/srv/job/chunks/assignment/_N.txt\", dtype=int)
import socket
k = int(socket.gethostname()[1:]) - 1
found = dgl.data.utils.load_tensors(f\"/srv/job/data/part{{k}}/orig_nids.dgl\")[\"_N\"]
assert sorted(found.tolist()) == numpy.flatnonzero(wanted == k).tolist()'"
    );
    for host in ["1", "2"] {
        let got = cluster.call(&["exec", host, "sh", "-c", &check]);
        assert_eq!(got.status, 0, "{how}: {}", got.err);
    }
    let train = format!(
        "{FETCH} && ipconf-check ip_config.txt | host-probe --workspace /srv/job --python \
         {python} | part-map --part-config data/metadata.json --workspace /srv/job --parts \
         remote | part-push | dgl-env --num-trainers 1 --num-omp-threads 1 -- {python} \
         dgl/train.py --ip-config ip_config.txt --part-config data/g.json --num-epochs 2 | \
         dgl-spawn --timeout 5m --format human"
    );
    let trained = well(cluster, folder, &train);
    assert!(trained.contains("loss fell from"), "{how}: {trained}");
    cluster.assert_clean();
}

#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts"]
fn partitioned_by_dgl_and_trained_on_real_dgl_hosts() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    let python = prepare(&cluster, &folder);
    for how in ["--random=3", "--given given.npy"] {
        partition_and_train(&cluster, &folder, &python, how);
    }
}

/// The folder of the test stands for storage that all hosts share.
#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts, mpirun and pm_dglpart"]
fn partitioned_by_parmetis_and_trained_on_real_dgl_hosts() {
    let folder = scratch();
    if sh(&folder, "command -v mpirun && command -v pm_dglpart").status != 0 {
        println!("skipped: mpirun and pm_dglpart are not both in PATH");
        return;
    }
    let cluster = Cluster::up(2);
    let python = prepare(&cluster, &folder);
    let prepared = format!(
        "nfs=$PWD/nfs; hosts() {{ ipconf-check ip_config.txt | host-probe --workspace $nfs; }}
         hosts | part-map --workspace $nfs --script-folder distpartitioning | part-push &&
         hosts | chunk-map --metadata chunked/metadata.json --workspace $nfs | part-push \
             >shared.jsonl &&
         dgl-env --role worker -- env PMI_RANK={{rank}} {python} \
             distpartitioning/parmetis_preprocess.py --schema_file metadata.json --num_parts 2 \
             --input_dir $nfs/chunks --output_dir $nfs/parmetis <shared.jsonl | \
         dgl-spawn --timeout 5m --format human"
    );
    well(&cluster, &folder, &prepared);
    let parmetis = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        mpirun --host 10.77.0.1,10.77.0.2 --wdir $PWD/nfs/parmetis $(command -v pm_dglpart) \
            $PWD/nfs/chunks/g 2 parmetis_nfiles.txt parmetis_efiles.txt";
    let message = well(&cluster, &folder, parmetis);
    assert!(message.contains("gnvtxs: 400, gnedges: 3000"), "{message}");
    let how = "--parmetis nfs/chunks/g_part.2";
    partition_and_train(&cluster, &folder, &python, how);
}

#[test]
#[ignore = "make test-partitioning runs it: it needs DGL's scripts"]
fn a_killed_stage_makes_the_next_refuse_on_real_dgl_hosts() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    let python = prepare(&cluster, &folder);
    let fails = |script: &str, problem: &str| {
        let ran = cluster.sh(&folder, script);
        assert!(
            ran.status != 0 && ran.err.contains(problem),
            "{script}: {} {}",
            ran.status,
            ran.err
        );
    };
    // part-assign: what it had begun has no name yet
    fails(COPY, "parts/_N.txt: No such file");
    let assign = "part-assign --metadata chunked/metadata.json --num-parts 2 --random --to parts";
    well(&cluster, &folder, assign);
    fails(&format!("{COPY} | head -n 4 | part-push"), "file");
    fails(&format!("{COPY} | head -n 0 | part-push"), "stdin");
    well(
        &cluster,
        &folder,
        &format!("{COPY} | part-push >whole.jsonl"),
    );
    well(&cluster, &folder, "head -n -1 whole.jsonl >pushed.jsonl");
    fails(&pipeline(&python), "pushed");
    fs::rename(folder.join("whole.jsonl"), folder.join("pushed.jsonl")).unwrap();
    // a process of the pipeline: the others are ended, and there is nothing to go on with
    let kill = "-- sh -c 'test $RANK = 0 || kill -9 $$; exec \"$@\"' sh ";
    fails(
        &pipeline(&python).replacen("-- ", kill, 1),
        "worker 1 ended by SIGKILL",
    );
    cluster.assert_clean();
    fails(FETCH, "data/metadata.json");
}

/// The folder of a graph in chunks with a file each, of one type of nodes.
fn chunked() -> std::path::PathBuf {
    let folder = scratch();
    let text = r#"{"graph_name": "g", "node_type": ["n"], "num_nodes_per_chunk": [[2, 2]],
        "edge_type": ["n:e:n"], "num_edges_per_chunk": [[1, 1]],
        "edges": {"n:e:n": {"format": {"name": "csv"}, "data": ["e/0", "/gone/chunked/e/1"]}}}"#;
    fs::create_dir_all(folder.join("chunked/e")).unwrap();
    fs::write(folder.join("chunked/metadata.json"), text).unwrap();
    for chunk in ["0", "1"] {
        fs::write(folder.join("chunked/e").join(chunk), "0 1\n").unwrap();
    }
    fs::write(folder.join("ip.txt"), "10.0.0.1\n10.0.0.2\n").unwrap();
    folder
}

const MAP: &str = "ipconf-check ip.txt | chunk-map --metadata chunked/metadata.json --workspace /w";
const ASSIGN: &str = "part-assign --metadata chunked/metadata.json --to parts --num-parts";

#[test]
fn chunks_and_assignment_become_records() {
    let folder = chunked();
    let drawn = sh(
        &folder,
        &format!("{ASSIGN} 2 --random=1 && cat parts/n.txt"),
    );
    assert_eq!(
        (drawn.status, drawn.out.lines().count()),
        (0, 6),
        "{}",
        drawn.err
    );
    let again = sh(
        &folder,
        &format!("{ASSIGN} 2 --random=1 && cat parts/n.txt"),
    );
    assert_eq!(drawn.out, again.out, "a seed draws the same");
    let map = format!("{MAP} --rel-data-path c --assignment parts >plan.jsonl");
    sh(&folder, &map).ends(0);
    let jq = "jq -r 'select(.type == \"file\") | \"\\(.host) \\(.kind) \\(.dst)\"' plan.jsonl";
    assert_eq!(
        sh(&folder, jq).out,
        "null ip_config /w/ip_config.txt\nnull config /w/c/metadata.json\n\
         null chunk /w/c/assignment/n.txt\n0 chunk /w/c/e/0\n1 chunk /w/c/edges/n:e:n/1\n"
    );
    let jq = "jq -c 'select(.kind == \"config\") | .content | fromjson | [.num_nodes_per_type, \
        .edges[].data]' plan.jsonl";
    assert_eq!(sh(&folder, jq).out, "[[4],[\"e/0\",\"edges/n:e:n/1\"]]\n");
}

/// Each line is refused with that status and problem.
fn refused(folder: &Path, table: &[(String, i32, &str)]) {
    for (line, status, problem) in table {
        let got = sh(folder, line);
        assert!(
            got.status == *status && got.err.contains(problem) && got.out.is_empty(),
            "{line}: {} {}{}",
            got.status,
            got.err,
            got.out
        );
    }
}

#[test]
fn a_given_assignment_is_checked_before_it_is_written() {
    let folder = chunked();
    let python = "import struct, sys
head = repr({'descr': '<i4', 'fortran_order': False, 'shape': (4,)}).encode() + b'\\n'
array = b'\\x93NUMPY\\1\\0' + struct.pack('<H', len(head)) + head + struct.pack('<4i', 0, 1, 1, 0)
sys.stdout.buffer.write(array)";
    fs::write(folder.join("npy.py"), python).unwrap();
    let given = format!("python3 npy.py >n.npy && {ASSIGN} 2 --given n.npy && cat parts/n.txt");
    assert_eq!(sh(&folder, &given).out, "n 0 2\nn 1 2\n0\n1\n1\n0\n");
    let table = [
        (format!("{ASSIGN} 2"), 2, "--random"),
        (
            format!("{ASSIGN} 2 --given n=n.npy --given n.npy"),
            2,
            "--given: n is there twice",
        ),
        (format!("{ASSIGN} 2 --given none"), 74, "none: No such file"),
        (
            format!("{ASSIGN} 9 --random"),
            65,
            "no node goes to partition",
        ),
        (
            format!("printf '0\\n3\\n1\\n1\\n' >t; {ASSIGN} 2 --given t"),
            65,
            "names partition 3",
        ),
        (
            format!("printf '0\\n1\\n' >t; {ASSIGN} 2 --given n=t"),
            65,
            "has 2 nodes, the metadata 4",
        ),
        (
            format!("printf '0\\nx\\n' >t; {ASSIGN} 2 --given n=t"),
            65,
            "t:2: is not a number",
        ),
    ];
    refused(&folder, &table);
}

/// Makes a graph in chunks one of the node types `n` and `m`, with two nodes each.
fn with_two_types(folder: &Path) {
    let metadata = folder.join("chunked/metadata.json");
    let text = fs::read_to_string(&metadata).unwrap();
    let text = text.replace("[\"n\"]", "[\"n\", \"m\"]");
    let text = text.replace("[[2, 2]]", "[[1, 1], [1, 1]]");
    fs::write(metadata, text).unwrap();
}

#[test]
fn a_source_is_read_once_and_may_lie_where_the_assignment_goes() {
    let folder = chunked();
    with_two_types(&folder);
    let bash = |script: &str| {
        fs::write(folder.join("script"), script).unwrap();
        sh(&folder, "timeout 60 bash script")
    };
    let (given, whole) = ("0\n1\n1\n0\n", "n 0 1\nn 1 1\nm 0 1\nm 1 1\n");
    let read = "cat parts/n.txt parts/m.txt";
    let pipes = format!(
        "{ASSIGN} 2 --given n=<(printf '0\\n1\\n') --given m=<(printf '1\\n0\\n') && {read}"
    );
    let parmetis = format!("{ASSIGN} 2 --parmetis <(printf '0 0\\n1 1\\n2 1\\n3 0\\n') && {read}");
    for script in [pipes, parmetis] {
        let got = bash(&script);
        assert_eq!(got.out, format!("{whole}{given}"), "{script}: {}", got.err);
    }
    // they change places
    let got = bash(&format!(
        "{ASSIGN} 2 --given n=parts/m.txt --given m=parts/n.txt && {read}"
    ));
    assert_eq!(got.out, format!("{whole}1\n0\n0\n1\n"), "{}", got.err);
    // the second type is refused after the first was written
    let got = bash(&format!(
        "printf '0\\n7\\n' >wrong; {ASSIGN} 2 --given n=parts/m.txt --given m=wrong; \
         {read}; ls parts; {} 2 --given n=parts/m.txt --given m=wrong; ls -d new",
        ASSIGN.replace("--to parts", "--to new/parts")
    ));
    let same = "1\n0\n0\n1\nm.txt\nn.txt\npartition_meta.json\n";
    assert_eq!(got.out, same, "{}", got.err);
}

#[test]
fn what_parmetis_has_written_is_an_assignment() {
    let folder = chunked();
    fs::write(folder.join("g_part.2"), "2 0\n0 1\n3 0\n1 1\n").unwrap();
    let taken = sh(
        &folder,
        &format!("{ASSIGN} 2 --parmetis g_part.2 && cat parts/n.txt parts/partition_meta.json"),
    );
    assert_eq!(
        taken.out,
        "n 0 2\nn 1 2\n1\n1\n0\n0\n{\"version\": \"1.0.0\", \"num_parts\": 2, \
         \"algo_name\": \"metis\"}\n",
        "{}",
        taken.err
    );
    let wrong = |text: &str| format!("rm -r parts; printf '{text}' >g; {ASSIGN} 2 --parmetis g");
    let table = [
        (
            format!("{ASSIGN} 2 --random --parmetis g"),
            2,
            "cannot be used",
        ),
        (
            format!("{ASSIGN} 2 --parmetis none"),
            74,
            "none: No such file",
        ),
        (wrong("0 1\\n1"), 65, "g:2: is not the number of a node"),
        (wrong("0 1\\n1 0\\n"), 65, "g: has no partition for node 2"),
        (
            wrong("0 1\\n1 2\\n2 0\\n3 0\\n"),
            65,
            "--parmetis: n: names partition 2; they are 0 to 1",
        ),
    ];
    refused(&folder, &table);
}

#[test]
fn what_is_wrong_with_chunks_is_told_before_they_travel() {
    let folder = chunked();
    let table = [
        (
            format!("{MAP} --assignment parts"),
            74,
            "parts/n.txt: No such file",
        ),
        (
            format!(
                "mkdir parts; printf '0\\n2\\n1\\n0\\n' >parts/n.txt; {MAP} --assignment parts"
            ),
            65,
            "parts/n.txt: names partition 2; they are 0 to 1",
        ),
        (
            format!("rm chunked/e/1; : >chunked/e/0; {MAP}"),
            65,
            "edges.n:e:n.1: no such file",
        ),
        (MAP.to_owned(), 65, "chunked/e/0: is empty"),
        (
            MAP.replace("/w", "w"),
            2,
            "--workspace: w is not an absolute path",
        ),
        (
            MAP.replace("chunked/metadata.json", "ip.txt"),
            65,
            "not the metadata of chunks",
        ),
        (
            MAP.replace("chunked/metadata.json", "none"),
            74,
            "none: No such file",
        ),
        (MAP.replace("ip.txt", "/dev/null"), 65, "stdin"),
    ];
    refused(&folder, &table);
}
