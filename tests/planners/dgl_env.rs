//! dgl-env against DGL's own launcher, and against records that were edited on the way.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::path::Path;
use std::process::Command;
use support::{executable, make_folder, ran, root, scratch, sh, takes_seconds, write};

/// What dgl-env sets and the launcher of some release, or of all, does not; on purpose.
const MORE: [&str; 7] = [
    "DGL_GRAPH_FORMAT",
    "DGL_GROUP_ID",
    "DGL_KEEP_ALIVE",
    "OMP_NUM_THREADS",
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
];

/// A process: role and rank, folder, variables, words.
type Seen = (String, String, BTreeMap<String, String>, String);

fn variables(text: &str) -> BTreeMap<String, String> {
    text.split(' ')
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// A program that writes down what it was started with and where.
fn stand_in(folder: &Path, name: &str, text: &str) {
    executable(&folder.join("bin"), name, &format!("#!/bin/sh\n{text}\n"));
}

/// Runs the processes of a plan here, with stand-ins for their programs.
fn run_plan(folder: &Path, plan: &str) -> Vec<Seen> {
    let mut seen = Vec::new();
    for line in plan.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["type"] != "process" {
            continue;
        }
        let mut command = match record["argv"].as_array() {
            Some(words) => {
                let mut command = Command::new(words[0].as_str().unwrap());
                command.args(words[1..].iter().map(|word| word.as_str().unwrap()));
                command
            }
            None => {
                let mut command = Command::new("sh");
                command.args(["-c", record["shell"].as_str().unwrap()]);
                command
            }
        };
        let env = record["env"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name, value.as_str().unwrap()));
        command.env_clear().envs(env).env(
            "PATH",
            format!("{}:/usr/bin:/bin", folder.join("bin").display()),
        );
        let ran = ran(command
            .current_dir(record["cwd"].as_str().unwrap())
            .output()
            .unwrap());
        ran.ends(0);
        let mut lines = ran.out.lines();
        let (cwd, words) = (
            lines.next().unwrap().to_owned(),
            lines.next().unwrap().to_owned(),
        );
        let mut env: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        env.retain(|name, _| !["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
        seen.push((
            format!("{} {}", record["role"].as_str().unwrap(), record["rank"]),
            cwd,
            env,
            words,
        ));
    }
    seen.sort();
    seen
}

/// A process of DGL's launcher, or the trainers that torch's launcher makes of it: dgl-env starts
/// them itself, with the variables that torch gives them.
fn started((role, cwd, env, words): Seen) -> Vec<Seen> {
    let Some((python, rest)) = words.split_once(" -m torch.distributed.") else {
        return vec![(role, cwd, env, words)];
    };
    let (torch, script) = rest.split_once(" --master_port=1234 ").unwrap();
    let number = |name: &str| -> u32 {
        let mut words = torch.split(' ');
        let value = words.find_map(|word| word.strip_prefix(name)).unwrap();
        value.parse().unwrap()
    };
    let (count, node) = (number("--nproc_per_node="), number("--node_rank="));
    let trainer = |local_rank: u32| {
        let rank = node * count + local_rank;
        let of_torch = [
            ("RANK", rank),
            ("LOCAL_RANK", local_rank),
            ("WORLD_SIZE", number("--nnodes=") * count),
            ("LOCAL_WORLD_SIZE", count),
            ("GROUP_RANK", node),
            ("MASTER_PORT", 1234),
        ];
        let mut env = env.clone();
        env.extend(of_torch.map(|(name, value)| (name.to_owned(), value.to_string())));
        env.insert("MASTER_ADDR".to_owned(), "10.0.0.1".to_owned());
        let words = format!("{python} {script}");
        (format!("trainer {rank}"), cwd.clone(), env, words)
    };
    (0..count).map(trainer).collect()
}

#[test]
fn processes_see_what_dgls_own_launcher_gives_them() {
    let folder = scratch();
    let ws = folder.join("ws");
    make_folder(&ws, "code");
    for python in ["python", "python3", "python3.8"] {
        stand_in(
            &folder,
            python,
            "printf '%s\\n' \"$PWD\" \"${0##*/} $*\"; env",
        );
    }
    stand_in(&folder, "numactl", "shift; exec \"$@\"");
    write(&folder, "ip.txt", "10.0.0.1 30050\n10.0.0.2 30050\n");

    let table = read_to_string(root().join("tests/dgl_env/launch_py.txt"))
        .unwrap()
        .replace("/ws", &ws.display().to_string());
    let mut compared = 0;
    for block in table.split("\n\n").skip(1) {
        let line = |name: &str| {
            block
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap_or_default()
                .trim()
        };
        let rows: Vec<Vec<&str>> = block
            .lines()
            .filter(|line| line.contains(" | "))
            .map(|line| line.split(" | ").map(str::trim).collect())
            .collect();
        let releases: std::collections::BTreeSet<&str> =
            rows.iter().flat_map(|row| row[0].split(' ')).collect();
        let differs = variables(line("differs "));
        // launch.py takes all of them behind one --extra_envs
        let flags = match line("flags ").split_once("--extra_envs") {
            Some((flags, extra)) => format!("{flags}{}", extra.replace(' ', " --env ")),
            None => line("flags ").to_owned(),
        };
        let script = format!(
            "unset OMP_NUM_THREADS PYTHONPATH; export {} NONE=; ipconf-check ip.txt | jq -c \
                 '.cpus=2' | \
                 dgl-env --workspace '{}' --master-port 1234 {flags} '{}'",
            line("here "),
            ws.display(),
            line("command ")
        );
        let plan = sh(&folder, &script);
        plan.ends(0);
        let ours = run_plan(&folder, &plan.out);
        for release in releases {
            let of_release = rows
                .iter()
                .filter(|row| row[0].split(' ').any(|other| other == release));
            let mut theirs: Vec<Seen> = of_release
                .flat_map(|row| {
                    started((
                        row[1].to_owned(),
                        row[3].to_owned(),
                        variables(row[4]),
                        row[5].to_owned(),
                    ))
                })
                .collect();
            theirs.sort();
            assert_eq!(ours.len(), theirs.len(), "{script}");
            for (ours, mut theirs) in ours.iter().zip(theirs) {
                let more = ours
                    .2
                    .iter()
                    .filter(|(name, _)| MORE.contains(&name.as_str()));
                for (name, value) in more {
                    theirs.2.entry(name.clone()).or_insert(value.clone());
                }
                if ours.0.starts_with("trainer") {
                    theirs.2.extend(differs.clone());
                }
                assert_eq!(*ours, theirs, "DGL {release}: {script}");
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "the table was read: {compared}");
}

#[test]
fn edited_records_are_checked_again() {
    if takes_seconds() {
        return;
    }
    let folder = scratch();
    write(&folder, "ip.txt", "10.0.0.1\n10.0.0.2\n");
    let graph = concat!(
        r#"{"type":"graph","graph_name":"g","num_parts":2,"files":0,"workspace":"/ws","#,
        r#""part_config":"data/g.json","ip_config":"ip_config.txt"}"#
    );
    write(&folder, "graph.jsonl", graph);
    let host = |edit: &str| format!(r#"if .type == "host" and .id == 1 then {edit} else . end"#);
    let graph = |edit: &str| format!(r#"if .type == "graph" then {edit} else . end"#);
    let of_hosts = [
        (".id = 0", "host records: id 0 is there twice"),
        (".id = 2", "host records: id 2 is not below 2"),
        (".id = -1", "not a record: invalid value"),
        (".id = 1.5", "not a record: invalid type"),
        (".of = 3", "host records: one says it is of 2, another of 3"),
        ("empty", "1 of 2 host records are missing"),
        (".ok = false", "the stage before this one failed"),
        ("del(.ip)", "missing field `ip`"),
        (".ip = \"node1\"", "host record 1: invalid IPv4 address"),
        (
            ".ip = \"10.0.0.1\"",
            "host 1 (10.0.0.1): has the address of host 0",
        ),
        (
            ".ip = \"0.0.0.0\"",
            "host 1 (0.0.0.0): 0.0.0.0 is not a host's address",
        ),
        (
            ".ip = \"127.0.1.1\"",
            "the other hosts cannot reach 127.0.1.1",
        ),
        (".port = 0", "host 1 (10.0.0.2): port 0"),
        (".port = 65536", "host record 1: invalid value"),
        (
            ".port = 65535",
            "2 servers from port 65535 on go beyond 65535",
        ),
        (".cpus = 0", "host 1 (10.0.0.2): cpus is 0"),
        (".cpus = \"8\"", "host record 1: invalid type"),
        (
            ".iface = \"\"",
            "iface \"\" is not a network interface's name",
        ),
        (".iface = \"eth0,eth1\"", "iface \"eth0,eth1\" is not"),
        (
            ".iface = \"eth 0\\u0000\"",
            "is not a network interface's name",
        ),
        (
            ".iface = \"a-name-of-16-byt\"",
            "is not a network interface's name",
        ),
        (
            ".prefix = \"/v\\u0000\"",
            "prefix \"/v\\0\" is not an absolute path",
        ),
        (
            ".path = \"/bin\\u0000\"",
            "host 1 (10.0.0.2): path has a NUL byte in it",
        ),
        (
            ".conda_env = \"a\\u0000b\"",
            "host 1 (10.0.0.2): conda_env has a NUL byte in it",
        ),
        (".master_port = 0", "host 1 (10.0.0.2): master_port is 0"),
    ];
    let of_graphs = [
        (
            ".num_parts = 3",
            "stdin: graph record: 3 partitions for 2 hosts",
        ),
        (".num_parts = 0", "0 partitions for 2 hosts"),
        ("del(.num_parts)", "missing field `num_parts`"),
        (".workspace = \"ws\"", "ws is not an absolute path"),
        (
            ".workspace = \"~/ws\"",
            "the home of host 0 (10.0.0.1) is not known",
        ),
        (
            ".workspace = \"/w\\u0000s\"",
            "workspace: has a NUL byte in it",
        ),
        (".part_config = \"\"", "graph record: part_config: is empty"),
        ("., .", "2 graph records, where one is enough"),
    ];
    let process = r#"., {type: "process", id: 0, of: 1, host: 0, ip: "10.0.0.1",
        role: "worker", rank: 0, argv: ["t"]}"#;
    let of_hosts = of_hosts.map(|(edit, problem)| (host(edit), problem));
    let of_graphs = of_graphs.map(|(edit, problem)| (graph(edit), problem));
    let table = of_hosts.into_iter().chain(of_graphs);
    for (edit, problem) in table.chain([(process.to_owned(), "")]) {
        let script = format!(
            "(ipconf-check ip.txt; cat graph.jsonl) | jq -c '{edit}' | dgl-env --num-trainers 1 \
             --num-servers 2 -- python3 t.py"
        );
        let got = sh(&folder, &script);
        got.gives(65, "").err_has(problem);
        let in_form = got.err.starts_with("dgl-env: ") && !got.err.contains("panicked");
        assert!(in_form, "{script}\n{}", got.err);
    }
}

#[test]
fn words_and_values_arrive_as_they_were_given() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let odd = r#"it's $HOME `x` "y" \ *;&|<>(){} é"#;
    write(&folder, "odd", odd);
    let show = r#"printf '%s\n' "$V" "$1" "$2""#;
    let script = format!(
        "ipconf-check ip.txt | host-probe --connect local | \
         dgl-env --role worker --workspace '{0}' --env V=\"$(cat odd)\" -- sh -c '{1}' x \"$(cat \
         odd)\" '' | dgl-spawn --connect local --format human",
        folder.display(),
        show.replace('\'', r"'\''")
    );
    sh(&folder, &script).ends(0).out_has_times(odd, 2);
    // one string is the user's shell text, and nothing in it is touched
    let text = r#"echo "a  b" '$V' $V | cat"#;
    write(&folder, "text", text);
    let plan = sh(
        &folder,
        "ipconf-check ip.txt | dgl-env --role worker --env V=v \"$(cat text)\" | jq -r '.shell // \
         empty'",
    );
    assert_eq!(plan.out.trim_end(), text);
}

#[test]
fn warnings_name_what_disagrees_and_change_nothing() {
    let folder = scratch();
    make_folder(&folder, "data");
    write(&folder, "ip.txt", "10.0.0.1\n");
    write(
        &folder,
        "data/g.json",
        r#"{"graph_name":"g","num_parts":1}"#,
    );
    let env = |more: &str, command: &str| {
        let edit = r#".cpus=8|.iface="eth0"|.dgl="0.6.1"|.python="3.8.1""#;
        let flags = "--num-trainers 1 --workspace \"$PWD\" --part-config data/g.json";
        sh(
            &folder,
            &format!(
                "ipconf-check ip.txt | jq -c '{edit}' | env -u OMP_NUM_THREADS {more} dgl-env \
                 {flags} {command}"
            ),
        )
    };
    let fine = env(
        "",
        "-- python3 t.py --graph_name g --part_config \"$PWD/data/g.json\" --ip_config \
         ip_config.txt",
    );
    assert_eq!((fine.status, fine.err.as_str()), (0, ""));
    let table = [
        (
            "",
            "-- 'python3 t.py'",
            "leave out -- to have the hosts' shell read it",
        ),
        (
            "",
            "--num-samplers 1 -- python3 t.py",
            "does not support samplers under Python 3.8",
        ),
        (
            "OMP_NUM_THREADS=6",
            "--num-omp-threads 3 -- python3 t.py",
            "--num-omp-threads 3 is taken, not OMP_NUM_THREADS=6",
        ),
        (
            "",
            "'python3 t.py 2>&1 | tee out.txt'",
            "\"tee out.txt\" hides the exit status of \"python3 t.py\"",
        ),
        (
            "",
            "-- bash -c 'python3 t.py; date'",
            "write && in place of ; or begin the text with 'set -e;'",
        ),
    ];
    for (more, command, warning) in table {
        let got = env(more, command);
        got.ends(0)
            .err_begins("dgl-env: warning: ")
            .err_has(warning);
        assert_eq!(
            (got.err.lines().count(), got.out.lines().count()),
            (1, 3),
            "{}",
            got.err
        );
    }
    // two partitions for one host, in the config that lies here
    write(
        &folder,
        "data/g.json",
        r#"{"graph_name":"g","num_parts":2}"#,
    );
    env("", "-- python3 t.py")
        .ends(65)
        .err_has("data/g.json: 2 partitions for 1 hosts");
    // which proves nothing where the stream says what the hosts have
    sh(
        &folder,
        &format!(
            "echo 127.0.0.1 | ipconf-check >hosts; (cat hosts; echo '{}') | dgl-env \
             --num-trainers 1 -- python3 t.py",
            json!({"type": "graph", "graph_name": "g", "num_parts": 1, "files": 0,
                "workspace": folder, "part_config": "data/g.json", "ip_config": "ip_config.txt"})
        ),
    )
    .ends(0);
    sh(
        &folder,
        "printf '10.0.0.1\\n10.0.0.2\\n' | ipconf-check | dgl-env --workspace /ws --part-config \
         g.json --num-trainers 2,1 -- t",
    )
    .ends(0)
    .err_has("split the nodes in the script");
}
