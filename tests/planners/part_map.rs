//! part-map on real files, on partitions that DGL itself wrote and on what users make of them:
//! where the parts are, which form, what is refused before anything is copied, script folders.

use std::path::{Path, PathBuf};
use support::{Ran, partition, root, scratch, sh};

/// A folder with a fixture under `out/` and two host records in `hosts`.
fn fixture(name: &str) -> PathBuf {
    let folder = scratch();
    let from = root().join("tests/fixtures").join(name);
    let script = format!(
        "cp -r '{}' out && sed -i \"s|@HERE@|$PWD/out|\" out/g.json && printf \
         '10.0.0.1\\n10.0.0.2\\n' | ipconf-check >hosts",
        from.display()
    );
    sh(&folder, &script).ends(0);
    folder
}

fn part_map(flags: &str) -> String {
    let workspace = if flags.contains("--workspace") {
        ""
    } else {
        "--workspace /ws"
    };
    format!("part-map {workspace} {flags} <hosts")
}

fn map(folder: &Path, flags: &str) -> Ran {
    sh(folder, &part_map(flags))
}

/// `HOST DST` of each file, the host `-` where it goes to all.
fn files(folder: &Path, flags: &str) -> Vec<String> {
    let list = r#"select(.type=="file") | "\(.host // "-") \(.dst)""#;
    let got = sh(
        folder,
        &format!(
            "{} >plan.jsonl && jq -r '{list}' plan.jsonl",
            part_map(flags)
        ),
    );
    got.ends(0);
    got.out.lines().map(str::to_owned).collect()
}

/// Refused with all of these, and nothing on stdout.
fn refused(folder: &Path, flags: &str, status: i32, problems: &[&str]) {
    let got = map(folder, flags);
    got.gives(status, "");
    problems
        .iter()
        .for_each(|problem| assert!(got.err.contains(problem), "{flags}: {problem}: {}", got.err));
}

#[test]
fn each_part_goes_to_its_host_and_the_rest_to_all() {
    let folder = fixture("dgl-0.9.1-noshuffle");
    let got = files(&folder, "--part-config out/g.json");
    let expected = [
        "- /ws/ip_config.txt",
        "- /ws/data/g.json",
        "- /ws/data/node_map.npy",
        "- /ws/data/edge_map.npy",
        "0 /ws/data/part0/edge_feat.dgl",
        "0 /ws/data/part0/node_feat.dgl",
        "0 /ws/data/part0/graph.dgl",
        "1 /ws/data/part1/edge_feat.dgl",
        "1 /ws/data/part1/node_feat.dgl",
        "1 /ws/data/part1/graph.dgl",
    ];
    assert_eq!(got, expected);
    assert_eq!(
        files(&folder, "--script-folder out/part0"),
        [
            "- /ws/ip_config.txt",
            "- /ws/part0/edge_feat.dgl",
            "- /ws/part0/graph.dgl",
            "- /ws/part0/node_feat.dgl"
        ]
    );
    // links: a config in another folder, a part on another disk, a file of it elsewhere
    let links = "mkdir links disk && ln -s ../out/g.json links/ && mv out/part1 disk && ln -s \
        ../disk/part1 out && mv out/part0/graph.dgl disk/g && ln -s ../../disk/g \
        out/part0/graph.dgl";
    sh(&folder, links).ends(0);
    assert_eq!(files(&folder, "--part-config links/g.json"), expected);
    // names elsewhere, and what the distributed pipeline leaves beside a part
    std::fs::copy(
        folder.join("out/part1/node_feat.dgl"),
        folder.join("out/part1/orig_nids.dgl"),
    )
    .unwrap();
    let got = files(
        &folder,
        "--part-config out/g.json --rel-data-path a/b --config-name /etc/dgl/h.json --ip-config \
         conf/ip.txt",
    );
    assert!(
        got.contains(&"- /etc/dgl/h.json".to_owned())
            && got.contains(&"- /ws/conf/ip.txt".to_owned()),
        "{got:?}"
    );
    assert!(
        got.contains(&"1 /ws/a/b/part1/orig_nids.dgl".to_owned()),
        "{got:?}"
    );
    let graph = sh(
        &folder,
        "jq -r 'select(.type==\"graph\") | .part_config, .ip_config, .workspace, .files' \
         plan.jsonl",
    );
    assert_eq!(graph.out, "/etc/dgl/h.json\nconf/ip.txt\n/ws\n11\n");
    // the hosts' home is host-probe's to know
    let home = sh(
        &folder,
        "jq -c '.home=\"/home/me\"' hosts | part-map --workspace '~/job' | tail -n 1 | jq -r .dst",
    );
    assert_eq!(home.out, "/home/me/job/ip_config.txt\n");
    refused(
        &folder,
        "--workspace '~/job'",
        65,
        &["put host-probe before this tool"],
    );
}

#[test]
fn parts_that_their_hosts_have_already() {
    let folder = fixture("dgl-2.1.0-hetero");
    // rank 0 has the config alone
    sh(
        &folder,
        "mkdir meta && mv out/g.json meta/metadata.json && rm -r out",
    )
    .ends(0);
    let got = files(
        &folder,
        "--part-config meta/metadata.json --rel-data-path out --parts remote",
    );
    assert_eq!(got.len(), 8, "{got:?}");
    assert!(
        got[..2] == ["- /ws/ip_config.txt", "- /ws/out/g.json"]
            && got[7] == "1 /ws/out/part1/graph.dgl",
        "{got:?}"
    );
    let empty = sh(
        &folder,
        "jq -c 'select(.kind==\"partition\") | [.src, .content, .bytes]' plan.jsonl | sort -u",
    );
    assert_eq!(empty.out, "[null,null,0]\n", "nothing is sent");
    // part-push looks for them
    let ws = folder.join("ws");
    let one = format!(
        "jq -c '.of=1 | select(.id==0) | .ip=\"127.0.0.1\"' hosts >host; jq -c '.num_parts=1 | \
         del(.\"part-1\") | .num_nodes=48 | .num_edges=383 | \
         .node_map[] |= .[:1] | .edge_map[] |= .[:1]' meta/metadata.json >meta/one.json; \
         part-map --part-config meta/one.json --parts remote --workspace '{0}' <host | part-push \
         --connect local >pushed; s=$?; \
         jq -r 'select(.ok==false) | .error' pushed | sort -u; [ $s = 1 ] || exit 9; \
         mkdir -p '{0}/data/part0'; for f in graph node_feat edge_feat; do echo x \
         >'{0}/data/part0/'$f.dgl; done; \
         part-map --part-config meta/one.json --parts remote --workspace '{0}' <host | part-push \
         --connect local >pushed",
        ws.display()
    );
    sh(&folder, &one).gives(
        0,
        "it must already be on the host, and is not there; this machine has no copy\n",
    );
    assert_eq!(
        std::fs::read(ws.join("data/part0/graph.dgl")).unwrap(),
        b"x\n"
    );
}

#[test]
fn a_workspace_that_all_hosts_share() {
    let folder = fixture("dgl-1.0.4-homo");
    // from elsewhere: each file once
    let once = files(&folder, "--part-config out/g.json --parts shared");
    assert!(
        once.len() == 8 && once.iter().all(|file| file.starts_with("0 /ws/")),
        "{once:?}"
    );
    // partitioned in the workspace itself, as DGL's guide does: the config says already what it
    // must
    let ws = folder.to_str().unwrap();
    let shared = format!("--workspace '{ws}' --rel-data-path out --parts shared");
    assert_eq!(
        files(&folder, &format!("{shared} --part-config out/g.json")),
        [format!("0 {ws}/ip_config.txt")]
    );
    let config = sh(
        &folder,
        "jq -r 'select(.type==\"graph\") | .part_config' plan.jsonl",
    );
    assert_eq!(config.out, "out/g.json\n");
    // one that must name its files in another way is not written over
    refused(
        &folder,
        &format!("{shared} --part-config out/g.json --paths absolute"),
        65,
        &["would be written over", "--config-name"],
    );
    let beside = files(
        &folder,
        &format!("{shared} --part-config out/g.json --paths absolute --config-name h.json"),
    );
    assert_eq!(
        beside,
        [
            format!("0 {ws}/ip_config.txt"),
            format!("0 {ws}/out/h.json")
        ]
    );
    // a script folder in the workspace is there; one elsewhere is copied
    sh(
        &folder,
        "mkdir -p code/in me/lib && touch code/in/a.py me/lib/b.py",
    )
    .ends(0);
    let scripts = files(
        &folder,
        &format!("{shared} --script-folder code --script-folder me/lib"),
    );
    assert_eq!(
        scripts,
        [format!("0 {ws}/ip_config.txt"), format!("0 {ws}/lib/b.py")]
    );
}

#[test]
fn the_form_of_the_graph() {
    let folder = fixture("dgl-2.1.0-graphbolt");
    let graphs = |flags: &str| -> Vec<String> {
        let files = files(&folder, &format!("--part-config out/g.json {flags}"));
        files
            .iter()
            .filter(|file| file.contains("part0/graph") || file.contains("part0/fused"))
            .cloned()
            .collect()
    };
    let (dgl, graphbolt) = (
        "0 /ws/data/part0/graph.dgl".to_owned(),
        "0 /ws/data/part0/fused_csc_sampling_graph.pt".to_owned(),
    );
    assert_eq!(graphs(""), [dgl.clone(), graphbolt.clone()]);
    assert_eq!(graphs("--graph both"), [dgl.clone(), graphbolt.clone()]);
    assert_eq!(graphs("--graph dgl"), [dgl]);
    assert_eq!(graphs("--graph graphbolt"), [graphbolt]);
    let keys = sh(
        &folder,
        "jq -r 'select(.kind==\"config\") | .content' plan.jsonl | jq -c '.\"part-1\" | keys'",
    );
    assert_eq!(
        keys.out, "[\"edge_feats\",\"node_feats\",\"part_graph_graphbolt\"]\n",
        "what is not copied is not named"
    );
    let warned = |flags: &str| {
        map(&folder, &format!("--part-config out/g.json {flags}"))
            .err
            .contains("in both forms")
    };
    assert!(warned("") && !warned("--graph both") && !warned("--graph dgl"));
    let plain = fixture("dgl-2.1.0-homo");
    refused(
        &plain,
        "--part-config out/g.json --graph graphbolt",
        65,
        &[
            "not every part has the part_graph_graphbolt",
            "dgl_partition_to_graphbolt",
        ],
    );
}

#[test]
fn what_would_fail_on_the_hosts_is_refused_here() {
    let table: [(&str, &str, &[&str]); 12] = [
        (
            "dgl-1.0.4-homo",
            "rm out/part1/graph.dgl out/part0/node_feat.dgl",
            &[
                "part-1.part_graph: no such file",
                "part-0.node_feats: no such file",
            ],
        ),
        (
            "dgl-1.0.4-homo",
            ": >out/part1/edge_feat.dgl",
            &["part1/edge_feat.dgl: is empty"],
        ),
        (
            "dgl-1.0.4-homo",
            "cp out/part0/graph.dgl out/part0/node_feat.dgl",
            &["part0/node_feat.dgl: does not begin as a file of tensors"],
        ),
        (
            "dgl-2.1.0-graphbolt",
            "echo x >out/part0/fused_csc_sampling_graph.pt",
            &["does not begin as a file that torch saved"],
        ),
        (
            "dgl-0.9.1-noshuffle",
            "truncate -s -1 out/node_map.npy",
            &["node_map.npy: is 1087 bytes long, which is not what its header says"],
        ),
        (
            "dgl-0.5.3-noshuffle",
            "cp out/edge_map.npy out/node_map.npy",
            &["node_map.npy: has 400 numbers, where the config says 120"],
        ),
        (
            "dgl-0.5.3-homo",
            "sed -i 's/\"num_nodes\": 120/\"num_nodes\": 121/' out/g.json",
            &["g.json: node_map: ends at 120, where there are 121"],
        ),
        (
            "dgl-1.1.3-hetero",
            "jq '.node_map.item[1][0] = 50' out/g.json >o && mv o out/g.json",
            &["node_map: \"item\": part-1 begins at 50, where the one before it ends at 54"],
        ),
        (
            "dgl-1.1.3-hetero",
            "jq 'del(.\"part-1\")' out/g.json >o && mv o out/g.json",
            &["g.json: part-1 is missing"],
        ),
        (
            "dgl-1.1.3-hetero",
            "jq 'del(.etypes[\"user:buys:item\"])' out/g.json >o && mv o out/g.json",
            &["edge_map: \"user:buys:item\" is not in etypes"],
        ),
        (
            "dgl-1.0.4-homo",
            "sed -i 's|part1/|part0/|' out/g.json",
            &["part-1.part_graph: is part-0.part_graph too"],
        ),
        (
            "dgl-1.0.4-homo",
            "head -n 1 hosts | jq -c .of=1 >h && mv h hosts",
            &["2 partitions for 1 hosts"],
        ),
    ];
    for (name, damage, problems) in table {
        let folder = fixture(name);
        assert_eq!(map(&folder, "--part-config out/g.json").status, 0, "{name}");
        sh(&folder, damage).ends(0);
        refused(&folder, "--part-config out/g.json", 65, problems);
    }
}

#[test]
fn a_version_that_cannot_load_it() {
    let table = [
        // what wrote it, the hosts' version, how it is named, and what is said
        (
            "dgl-0.9.1-hetero",
            "1.1.3+cu118",
            "config",
            Some("change_etype_to_canonical_etype.py"),
        ),
        ("dgl-0.9.1-hetero", "0.9.1", "config", None),
        ("dgl-1.1.3-hetero", "0.9.1", "config", Some("src:etype:dst")),
        (
            "dgl-0.9.1-noshuffle",
            "2.1.0",
            "config",
            Some("reshuffle=True"),
        ),
        (
            "dgl-0.5.3-homo",
            "0.5.3",
            "config",
            Some("--paths workspace"),
        ),
        ("dgl-0.5.3-homo", "0.5.3", "workspace", None),
        ("dgl-0.5.3-homo", "0.5.3", "absolute", None),
        ("dgl-2.1.0-hetero", "2.1.0", "config", None),
    ];
    for (name, version, paths, problem) in table {
        let folder = fixture(name);
        sh(
            &folder,
            &format!("jq -c '.dgl=\"{version}\"' hosts >h && mv h hosts"),
        )
        .ends(0);
        let flags = format!("--part-config out/g.json --paths {paths}");
        match problem {
            Some(problem) => refused(
                &folder,
                &flags,
                65,
                &[problem, &format!("has DGL {version}")],
            ),
            None => assert_eq!(
                (
                    map(&folder, &flags).status,
                    map(&folder, &flags).err.as_str()
                ),
                (0, ""),
                "{name} {version}"
            ),
        }
    }
    let folder = fixture("dgl-0.6.1-homo");
    map(&folder, "--part-config out/g.json")
        .ends(0)
        .err_begins("part-map: warning: out/g.json: names edge types without");
}

/// A folder with a partition, hosts, and a folder `code` of scripts with links, odd names and what
/// nobody wants on the hosts.
fn script_folder() -> PathBuf {
    let folder = scratch();
    partition(&folder, 1);
    let made = "echo 10.0.0.1 | ipconf-check >hosts; mkdir -p lib code/runs code/.git \
        code/__pycache__ code/deep/er 'code/odd \"ä' && touch lib/l.py \
                code/.git/config code/__pycache__/a.pyc code/a.pyc code/deep/er/b.py 'code/odd \
                \"ä/c' code/x.log code/keep.log && chmod 755 code/deep/er/b.py && \
                ln -s ../lib code/lib && ln -s ../lib/l.py code/l.py && ln -s code also && mv out \
                code/data";
    sh(&folder, made).ends(0);
    folder
}

/// The scripts that go to the hosts.
fn scripts(folder: &Path, flags: &str) -> Vec<String> {
    files(folder, &format!("--part-config code/data/g.json {flags}"))
        .into_iter()
        .filter(|file| file.starts_with("- /ws/code") || file.starts_with("- /ws/also"))
        .collect()
}

/// The files of `code` that go to the hosts by default.
const SCRIPTS: [&str; 8] = [
    "deep/er/b.py",
    "keep.log",
    "l.py",
    "lib/l.py",
    "odd \"ä/c",
    "run it.sh",
    "x.log",
    "runs/",
];

#[test]
fn script_folders_as_scp_takes_them() {
    let folder = script_folder();
    // links are followed, the empty folder stays, and the partitions do not go to every host
    assert_eq!(
        scripts(&folder, "--script-folder code"),
        SCRIPTS.map(|file| format!("- /ws/code/{file}"))
    );
    assert_eq!(
        scripts(&folder, "--script-folder also").len(),
        SCRIPTS.len(),
        "a link is a folder under its own name"
    );
}

#[test]
fn scripts_are_left_out_and_taken_in_by_patterns() {
    let folder = script_folder();
    let some = scripts(
        &folder,
        "--script-folder code --exclude '*.log' --exclude '!keep.log' --exclude '!.git' --exclude \
         'deep/er/**' --exclude lib",
    );
    let rest = [
        ".git/config",
        "keep.log",
        "l.py",
        "odd \"ä/c",
        "run it.sh",
        "deep/er/",
        "runs/",
    ];
    assert_eq!(some, rest.map(|file| format!("- /ws/code/{file}")));
    let modes = sh(
        &folder,
        "jq -r 'select(.dst==\"/ws/code/runs/\" or .dst==\"/ws/code/.git/config\") | \"\\(.src) \
         \\(.bytes) \\(.mode)\"' plan.jsonl | sed 's|.*/||'",
    );
    assert_eq!(modes.out, "config 0 420\nnull 0 493\n");
}

#[test]
fn extras_go_where_they_are_told_and_nowhere_else() {
    let folder = script_folder();
    assert!(
        files(&folder, "--extra lib/l.py:conf/m.py --extra lib:/opt/lib")
            .ends_with(&["- /ws/conf/m.py".to_owned(), "- /opt/lib/l.py".to_owned()])
    );
    refused(
        &folder,
        "--extra lib/l.py:a --extra 'code/run it.sh:a'",
        65,
        &["run it.sh: goes to /ws/a as does", "--exclude"],
    );
    refused(
        &folder,
        "--extra lib/l.py:code --script-folder code",
        65,
        &["l.py: goes to /ws/code, where other files need a folder"],
    );
    refused(&folder, "--extra lib/l.py:../x", 2, &["../x has .. in it"]);
    // a lock or a stage of part-push there would keep every push out
    sh(&folder, "touch code/.part-push.lock").ends(0);
    refused(
        &folder,
        "--script-folder code --extra lib/l.py:.part-push.kept/a",
        65,
        &[
            "code/.part-push.lock: goes to /ws/code/.part-push.lock, but names that begin with",
            "l.py: goes to /ws/.part-push.kept/a, but names",
            "--exclude '.part-push.*'",
        ],
    );
    map(&folder, "--script-folder code --exclude '.part-push.*'").ends(0);
    // a file of the graph on one host, and a script for all
    let other = fixture("dgl-1.0.4-homo");
    sh(&other, "mkdir -p data/part0; echo x >data/part0/graph.dgl").ends(0);
    refused(
        &other,
        "--part-config out/g.json --script-folder data",
        65,
        &["out/part0/graph.dgl: goes to /ws/data/part0/graph.dgl as does"],
    );
}

#[test]
fn scripts_that_are_not_files_are_refused_or_left_out() {
    let folder = script_folder();
    let made = "mkfifo code/pipe; ln -s .. code/up; ln -s nowhere code/dangling";
    sh(&folder, made).ends(0);
    refused(
        &folder,
        "--script-folder code",
        65,
        &[
            "code/pipe: is neither a file nor a folder",
            "code/up: is a link to",
            "code/dangling: ",
        ],
    );
    assert_eq!(
        scripts(
            &folder,
            "--script-folder code --exclude pipe --exclude up --exclude dangling"
        )
        .len(),
        SCRIPTS.len()
    );
}

#[test]
fn much_data_among_scripts_is_a_warning() {
    let folder = script_folder();
    let big = sh(
        &folder,
        "truncate -s 101000000 lib/big && part-map --workspace /ws --script-folder lib <hosts",
    );
    big.ends(0);
    let warning = "warning: 101 MB of scripts and extras go to every host";
    big.err_has(warning);
}

#[test]
fn an_empty_folder_arrives() {
    let folder = scratch();
    let ws = folder.join("ws");
    let script = format!(
        "mkdir -p 'code/a b/c' code/d && echo 127.0.0.1 | ipconf-check | part-map --workspace \
         '{0}' --script-folder code >plan && \
         part-push --connect local <plan >pushed && part-push --connect local --verify <plan | jq \
         -c 'select(.type==\"pushed\") | .skipped' && \
         rm -r '{0}/code/d' && touch '{0}/code/d' && part-push --connect local <plan >again; echo \
         $?",
        ws.display()
    );
    let got = sh(&folder, &script);
    assert_eq!(got.out, "true\ntrue\ntrue\n1\n", "{}", got.err);
    got.err_has("code/d: ");
    assert!(ws.join("code/a b/c").is_dir());
}

/// A folder as GLT writes it, with `parts` parts by this name, and records of two hosts.
fn of_glt(name: &str, parts: u32) -> PathBuf {
    let folder = scratch();
    let script = format!(
        "printf '10.0.0.1\\n10.0.0.2\\n' | ipconf-check >hosts; mkdir -p out/node_pb; echo m \
         >out/META; echo n >out/node_pb/a.pt; for k in $(seq 0 {}); do mkdir -p out/{name}$k/graph \
         out/ranks; echo $k >out/{name}$k/graph/ids.pt; echo $k >out/ranks/rank=$k.parquet; done",
        parts - 1
    );
    sh(&folder, &script).ends(0);
    folder
}

const OF_ALL: [&str; 3] = [
    "- /ws/ip_config.txt",
    "- /ws/out/META",
    "- /ws/out/node_pb/a.pt",
];

#[test]
fn partitions_without_a_format() {
    let rest = |own: &[&str]| -> Vec<String> {
        let all = OF_ALL.iter().chain(own);
        all.map(|file| (*file).to_owned()).collect()
    };
    for name in ["part", "part_"] {
        let folder = of_glt(name, 2);
        let parts = [0, 1].map(|k| format!("{k} /ws/out/{name}{k}/graph/ids.pt"));
        let ranks = "--per-host 'ranks/rank={host}.parquet'";
        assert_eq!(
            files(&folder, &format!("--partitions out {ranks}")),
            rest(&[
                &parts[0],
                &parts[1],
                "0 /ws/out/ranks/rank=0.parquet",
                "1 /ws/out/ranks/rank=1.parquet"
            ])
        );
        let kinds = "jq -r 'select(.kind) | .kind' plan.jsonl | sort | uniq -c | tr -s ' '; \
            grep -c '\"type\":\"workspace\"' plan.jsonl";
        sh(&folder, kinds).gives(0, " 1 ip_config\n 2 map\n 4 partition\n1\n");
    }
    let folder = of_glt("part", 4);
    let two_each = files(
        &folder,
        "--partitions out --parts-per-host 2 --exclude ranks",
    );
    assert_eq!(
        two_each,
        rest(&[
            "0 /ws/out/part0/graph/ids.pt",
            "0 /ws/out/part1/graph/ids.pt",
            "1 /ws/out/part2/graph/ids.pt",
            "1 /ws/out/part3/graph/ids.pt"
        ])
    );
    // what the folder has is not copied to all once more as scripts; `.` has the folder's own name
    let again = format!(
        "cd out && {} | jq -r 'select(.host==null) | .dst // empty'",
        part_map("--partitions . --parts-per-host 2 --script-folder ../out --exclude ranks")
            .replace("<hosts", "<../hosts")
    );
    let of_all: Vec<String> = OF_ALL
        .iter()
        .map(|file| file[2..].to_owned() + "\n")
        .collect();
    sh(&folder, &again).gives(0, &of_all.concat());
    // a workspace that all share has them already
    let here = folder.to_str().unwrap();
    assert_eq!(
        files(
            &folder,
            &format!("--partitions out --parts-per-host 2 --parts shared --workspace '{here}'")
        ),
        [format!("0 {here}/ip_config.txt")]
    );
}

#[test]
fn parts_of_any_format_that_their_hosts_have() {
    let folder = of_glt("part_", 2);
    let remote = "--partitions out --parts remote --rel-data-path d";
    assert_eq!(
        files(&folder, &format!("{remote} --exclude ranks")),
        [
            "- /ws/ip_config.txt",
            "- /ws/d/META",
            "- /ws/d/node_pb/a.pt",
            "0 /ws/d/part_0/graph/ids.pt",
            "1 /ws/d/part_1/graph/ids.pt"
        ]
    );
    sh(
        &folder,
        "jq -c 'select(.kind==\"partition\") | [.src, .bytes]' plan.jsonl | sort -u",
    )
    .gives(0, "[null,0]\n");
    // without any of them here, a host must have something of this name
    let ws = folder.join("ws");
    let push = format!(
        "echo 127.0.0.1 | ipconf-check | part-map --partitions part --parts remote --per-host \
         '{{host}}.pt' --workspace '{0}' | part-push --connect local >pushed; echo $?; \
         mkdir -p '{0}/part/part0'; echo x >'{0}/part/0.pt'; echo 127.0.0.1 | ipconf-check | \
         part-map --partitions part --parts remote --per-host '{{host}}.pt' --workspace '{0}' | \
         part-push --connect local >pushed; echo $?",
        ws.display()
    );
    let pushed = sh(&folder, &push);
    assert_eq!(pushed.out, "1\n0\n", "{}", pushed.err);
    for name in [
        "part/part0: it must already be on the host",
        "part/0.pt: it must already be on the host",
    ] {
        pushed.err_has(name);
    }
}

#[test]
fn parts_that_do_not_match_the_hosts() {
    let folder = of_glt("part", 4);
    let out = "--partitions out";
    refused(
        &folder,
        out,
        65,
        &[
            "out: surplus: part2, part3; 2 hosts need 2",
            "say --parts-per-host 2, or list 4 hosts",
        ],
    );
    refused(
        &folder,
        &format!("{out} --parts-per-host 3"),
        65,
        &["missing: part4, part5; 2 hosts with 3 each need 6"],
    );
    sh(&folder, "mkdir out/part_0; rm -r out/part1").ends(0);
    refused(
        &folder,
        &format!("{out} --per-host 'ranks/rank={{host}}.parquet' --per-host 'r{{host}}'"),
        65,
        &[
            "out: missing: part1;",
            "out: surplus: part2, part3;",
            "part0 to part1 must be there",
            "part0 and part_0 have the same number",
            "surplus: ranks/rank=2.parquet, ranks/rank=3.parquet",
            "r{host}: has nothing for any host: there is no r0",
        ],
    );
    refused(
        &folder,
        "--per-host '/out/{host}' --per-host '../{host}' --per-host part0",
        2,
        &[
            "/out/{host} leaves the folder",
            "../{host} leaves the folder",
            "part0 has no {host} in it",
        ],
    );
    refused(&folder, "--partitions out/META", 2, &["is not a folder"]);
    refused(&folder, "--partitions ou", 74, &["did you mean out"]);
    refused(&folder, "--partitions out --part-config out/g.json", 2, &[]);
}

#[test]
fn files_of_each_host_alone_and_beside_a_config() {
    let folder = of_glt("part", 2);
    let ranks = "--per-host './out//ranks/rank={host}.parquet' --per-host 'out/part{host}/'";
    assert_eq!(
        files(&folder, ranks),
        [
            "- /ws/ip_config.txt",
            "0 /ws/out/ranks/rank=0.parquet",
            "1 /ws/out/ranks/rank=1.parquet",
            "0 /ws/out/part0/graph/ids.pt",
            "1 /ws/out/part1/graph/ids.pt"
        ]
    );
    partition(&folder, 2);
    let beside = files(
        &folder,
        "--part-config out/g.json --per-host 'ranks/rank={host}.parquet'",
    );
    assert!(beside.len() == 10, "{beside:?}");
    assert_eq!(beside[9], "1 /ws/data/ranks/rank=1.parquet");
}

#[test]
fn several_parts_of_dgl_for_each_host() {
    let folder = of_glt("part", 2);
    partition(&folder, 4);
    refused(
        &folder,
        "--part-config out/g.json",
        65,
        &["4 partitions for 2 hosts", "say --parts-per-host 2"],
    );
    refused(
        &folder,
        "--part-config out/g.json --parts-per-host 3",
        65,
        &["4 partitions for 2 hosts; with 3 on each they must be 6"],
    );
    for parts in ["local", "remote"] {
        let flags = format!("--part-config out/g.json --parts-per-host 2 --parts {parts}");
        let graphs = files(&folder, &flags).into_iter();
        let graphs: Vec<String> = graphs.filter(|file| file.contains("graph.dgl")).collect();
        let expected = [(0, 0), (0, 1), (1, 2), (1, 3)];
        let expected = expected.map(|(host, part)| format!("{host} /ws/data/part{part}/graph.dgl"));
        assert_eq!(graphs, expected);
    }
    // DGL's own jobs refuse them; workers know what they read
    let env = |flags: &str| {
        sh(
            &folder,
            &format!("dgl-env {flags} -- python3 x.py <plan.jsonl"),
        )
    };
    let servers = env("--num-trainers 1");
    servers.ends(65);
    let problem = "4 partitions for 2 hosts; DGL needs as many hosts as partitions";
    servers.err_has(problem);
    env("--role worker").ends(0);
}
