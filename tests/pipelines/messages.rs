//! What goes wrong is told in one form: where, what, and what to do. Every kind of fault that can
//! be had is provoked with the real tools.

use std::path::Path;
use support::{
    Cluster, PYTHON_WITH_STAND_IN, ip_config, partition, read, scratch, sh, takes_seconds, write,
};

/// Each fault has its fix below it, or shares that of the next; one that an earlier stage has told
/// stands alone.
fn in_form(tool: &str, err: &str) -> Result<(), String> {
    let begin = format!("{tool}: ");
    let mut open = None;
    for line in err.lines() {
        match line.strip_prefix(&begin) {
            Some(rest) if rest.contains("the stage before this one failed: ") => {}
            Some(rest)
                if rest
                    .split(": ")
                    .nth(1)
                    .is_none_or(|problem| problem.trim().is_empty()) =>
            {
                return Err(format!("no place: {line}"));
            }
            Some(_) => open = Some(line.to_owned()),
            None if line
                .strip_prefix("  fix: ")
                .is_some_and(|fix| fix.len() > 5) =>
            {
                open = None;
            }
            None if line.starts_with("    ") => {}
            None => return Err(format!("no line of {tool}'s: {line}")),
        }
    }
    open.map_or(Ok(()), |line| Err(format!("no fix: {line}")))
}

/// A script whose last command is the tool; its status; where and what.
type Row<'a> = (&'a str, i32, &'a str);

fn all_in_form<'a>(folder: &Path, rows: impl IntoIterator<Item = Row<'a>>) {
    let mut wrong = Vec::new();
    for (script, status, told) in rows {
        let told = told.replace("PWD", &folder.display().to_string());
        let (location, problem) = told.split_once(": … ").unwrap();
        let last = script.rsplit(['|', ';', '\n']).next().unwrap();
        let tool = last
            .split_whitespace()
            .find(|word| support::commands().any(|tool| tool == *word))
            .unwrap();
        let ran = sh(folder, script);
        let report = ran.err.lines().any(|line| {
            line.starts_with(&format!("{tool}: {location}: ")) && line.contains(problem)
        });
        if std::env::var_os("SHOW").is_some() {
            println!("$ {script}\n{}", ran.err);
        }
        if ran.status != status || !report {
            wrong.push(format!(
                "{script}: status {}, wanted {status} and {told}\n{}",
                ran.status, ran.err
            ));
        } else if let Err(why) = in_form(tool, &ran.err) {
            wrong.push(format!("{script}: {why}\n{}", ran.err));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Streams and files that the rows need.
fn made() -> std::path::PathBuf {
    let folder = scratch();
    partition(&folder, 2);
    ip_config(&folder, 2);
    write(&folder, "here.txt", "127.0.0.1\n");
    let script = "ipconf-check ip.txt >hosts; ipconf-check here.txt >here;
        part-map --part-config out/g.json --workspace /w <hosts >files;
        dgl-env --role worker -- run! <here >job 2>/dev/null; touch empty; mkdir none";
    sh(&folder, script).ends(0);
    folder
}

#[test]
fn characters_of_word_processors_are_refused_by_every_tool_and_script() {
    let folder = made();
    let table = [
        (
            "–workspace /w",
            "command line: –workspace: – (U+2013) is not a hyphen\n  fix: type --workspace\n",
        ),
        (
            "up --job=“a”",
            "command line: --job=“a”: “ (U+201C) quotes nothing\n  fix: type straight quotation \
             marks: --job=\"a\"\n",
        ),
        (
            "'--rate\u{a0}1gbit' —job x",
            "command line: --rate\\u{a0}1gbit contains a no-break space (U+00A0)\n  fix: type an \
             ordinary space: --rate 1gbit\n",
        ),
    ];
    for tool in support::commands() {
        for (line, told) in table {
            let ran = sh(&folder, &format!("{tool} {line} <hosts"));
            ran.gives(2, "").err_has(&format!("{tool}: {told}"));
            in_form(tool, &ran.err).unwrap();
        }
        // all at once, and nothing about the pipeline of a script
        let ran = sh(&folder, &format!("{tool} —a ‘b’ <hosts"));
        assert_eq!(ran.err.lines().count(), 4, "{}", ran.err);
    }
    // in values they mean what they are
    let kept = "<hosts dgl-env --role worker --env 'T=–“x”' -- echo 'ranks 0–1, “all”' 10\u{a0}GB |
        jq -r 'select(.type == \"process\" and .rank == 0) | .env.T, .argv[]'";
    sh(&folder, kept).gives(0, "–“x”\necho\nranks 0–1, “all”\n10\u{a0}GB\n");
}

#[test]
fn of_command_lines() {
    let folder = made();
    let mut wrong = Vec::new();
    // clap's own words too
    for tool in support::TOOLS {
        for (flags, problem) in [
            ("--no-such-flag", "'--no-such-flag' found"),
            ("--version=3", "unexpected value '3'"),
        ] {
            let ran = sh(&folder, &format!("{tool} {flags} <hosts"));
            let report = ran.err.starts_with(&format!("{tool}: command line: "))
                && ran.err.contains(problem);
            if ran.status != 2 || !report || in_form(tool, &ran.err).is_err() {
                wrong.push(format!("{tool} {flags}: {} {}", ran.status, ran.err));
            }
        }
    }
    for tool in support::SCRIPTS {
        for flags in [
            "",
            "--no-such-flag x",
            "--workspace",
            "--workspace /w",
            "--workspace /w --ip_config x",
        ] {
            let ran = sh(&folder, &format!("{tool} {flags}"));
            if ran.status != 2 || in_form(tool, &ran.err).is_err() || ran.err.is_empty() {
                wrong.push(format!("{tool} {flags}: {} {}", ran.status, ran.err));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let rows = [
        (
            "<hosts dgl-env --role worker --setup '. “env.sh”' -- t",
            "--setup: … “env.sh”: “ (U+201C) quotes nothing",
        ),
        (
            "<hosts dgl-env --role worker 'cd x && python3 t.py –lr 0.1'",
            "COMMAND: … –lr: – (U+2013) is not a hyphen",
        ),
        (
            "<hosts dgl-env --role worker -- '“python3”' t.py",
            "command line: … “python3”: “ (U+201C) quotes nothing",
        ),
        (
            "<hosts dgl-env --num-trainer 2 -- t",
            "command line: … unexpected argument '--num-trainer' found",
        ),
        (
            "<hosts dgl-env -- t",
            "command line: … required arguments were not provided: --num-trainers",
        ),
        (
            "<hosts dgl-env --num-trainers 0 -- t",
            "command line: … invalid value '0' for '--num-trainers",
        ),
        (
            "<hosts dgl-env --launcher torchrun --num-trainers 1 -- t",
            "--launcher: … was removed",
        ),
        (
            "dgl-report --format speedscope run.jsonl",
            "--format speedscope: … was removed",
        ),
        (
            "<hosts host-probe --ssh_port 22",
            "--ssh-port: … was removed",
        ),
        (
            "<hosts DGL_TOOLS_CONNECT_TIMEOUT=5 host-probe",
            "command line: … write it as 10s",
        ),
        (
            "<hosts host-probe --connect telnet",
            "--connect: … telnet is none of auto, ssh2, ssh, local",
        ),
        (
            "<hosts host-probe --need 2 --host 1",
            "command line: … cannot be used with",
        ),
        (
            "<hosts host-probe --need 2 --min ram=1G",
            "command line: … write it as NAME=SIZE, NAME being memory, gpu, shm, disk",
        ),
        (
            "<hosts host-probe --need 2 --min disk=1G",
            "--min disk: … is the space in the workspace, which is not given",
        ),
        (
            "<hosts host-probe --need 2 --min shm=lots",
            "command line: … write it as 500M, 64G or 2T",
        ),
        (
            "<hosts host-probe --host 2",
            "--host: … there is no host 2 in the stream",
        ),
        (
            "<hosts part-map --part-config out/g.json --workspace w",
            "--workspace: … w is not an absolute path",
        ),
        (
            "<hosts part-map --part-config out/g.json --workspace /w/../x",
            "--workspace: … has .. in it",
        ),
        (
            "<hosts part-map --part-config out/g.json --workspace /w --config-name a/b",
            "--config-name: … is a file's name",
        ),
        (
            "<hosts part-map --workspace /w --script-folder out/g.json",
            "--script-folder: … is not a folder",
        ),
        (
            "<hosts part-map --workspace /w --script-folder /",
            "--script-folder: … / has no name of its own",
        ),
        (
            "<hosts part-map --workspace /w --script-folder code --exclude 'a['",
            "--exclude: … error parsing glob",
        ),
        (
            "<hosts part-pull --workspace /w --to . 'a['",
            "pattern: … error parsing glob",
        ),
        (
            "<hosts part-pull --workspace /w --to . ../a",
            "pattern: … is not a path below the workspace",
        ),
        ("<hosts part-pull --to . a", "--workspace: … is missing"),
        ("<hosts dgl-env --num-trainers 1", "COMMAND: … is missing"),
        (
            "<hosts dgl-env --num-trainers 1 a -- b",
            "COMMAND: … is there twice",
        ),
        (
            "<hosts dgl-env --num-trainers 1 -- t",
            "--workspace: … is missing, and the stream has no graph record",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --workspace '' -- t",
            "command line: … a value is required for '--workspace",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --workspace w --part-config g -- t",
            "--workspace: … w is not an absolute path",
        ),
        (
            "<hosts dgl-env --role server --role worker --num-trainers 1 -- t",
            "--role: … worker does not go together",
        ),
        (
            "<hosts dgl-env --role server -- t",
            "--num-trainers: … is missing: servers too",
        ),
        (
            "<hosts dgl-env --role worker --server-env A=1 -- t",
            "--server-env: … is not for workers",
        ),
        (
            "<hosts dgl-env --role worker --num-samplers 1 -- t",
            "--num-samplers: … is not for workers",
        ),
        (
            "<hosts dgl-env --role worker --num-servers 2 -- t",
            "--num-servers: … is not for workers",
        ),
        (
            "<hosts dgl-env --role worker --num-server-threads 2 -- t",
            "--num-server-threads: … is not for workers",
        ),
        (
            "<hosts dgl-env --role worker --graph-format coo -- t",
            "--graph-format: … is not for workers",
        ),
        (
            "<hosts dgl-env --role worker --num-workers 2,1 -- torchrun t.py",
            "COMMAND: … starts torch's launcher itself",
        ),
        (
            "<hosts dgl-env --role worker -- torchrun --nproc_per_node=2 t.py",
            "COMMAND: … does not tell each which host it is",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --role trainer --server-name s --workspace /w \
                 --part-config g -- t {master_port}",
            "{master_port}: … is not known yet",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --env DGL_ROLE=x -- t",
            "--env: … DGL_ROLE cannot be set",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --env A-B -- t",
            "--env: … is not a variable's name",
        ),
        (
            "<hosts dgl-env --num-trainers 1 --trainer-env 'A={x}' -- t",
            "--trainer-env: … {x} is not {local_rank}",
        ),
        (
            "<hosts dgl-env --num-trainers 1,2,3 -- t",
            "--num-trainers: … has 3 numbers for 2 hosts",
        ),
        (
            "<hosts dgl-env --role worker -- accelerate launch t.py",
            "COMMAND: … starts accelerate's launcher on several hosts",
        ),
        (
            "<hosts dgl-env --role worker 'cd x && mpirun -np 2 python3 t.py'",
            "COMMAND: … starts MPI's launcher itself",
        ),
        (
            "<hosts dgl-env --num-trainers 1 -- torchrun t.py",
            "COMMAND: … starts torch's launcher itself",
        ),
    ];
    all_in_form(&folder, rows.map(|(script, told)| (script, 2, told)));
}

#[test]
fn of_files_and_streams() {
    if takes_seconds() {
        return;
    }
    let folder = made();
    let python = "\"python\":\"3.11.2\",\"prefix\":\"/v\",\"python_path\":\"/v/bin/python3\"";
    let probed = read(&folder, "hosts").replace("\"line\"", &format!("{python},\"line\""));
    write(&folder, "probed", probed);
    all_in_form(
        &folder,
        [
            // ip_config
            ("ipconf-check no.txt", 74, "no.txt: … No such file"),
            ("ipconf-check none", 74, "none: … Is a directory"),
            ("ipconf-check empty", 65, "empty: … names no host"),
            (
                "printf '10.0.0.1 x\\n' | ipconf-check -",
                65,
                "stdin:1: … \"x\" is not a port",
            ),
            (
                "printf '10.0.0.1 1 2\\n' | ipconf-check -",
                65,
                "stdin:1: … a third column",
            ),
            (
                "printf '10.0.0.1\\n10.0.0.1\\n' | ipconf-check -",
                65,
                "stdin:2: … stands in line 1 \
                already",
            ),
            (
                "printf '10.0.0\\n' | ipconf-check -",
                65,
                "stdin:1: … is neither an IPv4 address nor a name",
            ),
            (
                "printf 'fe80::1\\n' | ipconf-check -",
                65,
                "stdin:1: … is an IPv6 address",
            ),
            (
                "printf 'node1 slots=2\\n' | ipconf-check -",
                65,
                "stdin:1: … \"slots=2\" gives slots",
            ),
            (
                "printf 'no-such-host.invalid\\n' | ipconf-check -",
                74,
                "stdin:1: … no-such-host.invalid",
            ),
            (
                "printf '127.0.0.1\\n10.0.0.1\\n' | ipconf-check -",
                65,
                "stdin:1: … is every \
                machine's own address",
            ),
            (
                "printf '224.0.0.1\\n' | ipconf-check -",
                65,
                "stdin:1: … is not a host's address",
            ),
            (
                "printf '10.0.0.1 65535\\n' | ipconf-check --num-servers 2 -",
                65,
                "stdin:1: … go \
                beyond 65535",
            ),
            (
                "printf '\\377\\376x' | ipconf-check -",
                65,
                "stdin: … is UTF-16",
            ),
            (
                "printf '10.0.0.1 \\377\\n' | ipconf-check -",
                65,
                "stdin:1: … is not UTF-8",
            ),
            (
                "head -c 5000 /dev/zero | tr '\\0' x | ipconf-check -",
                65,
                "stdin:1: … a line of \
                5000 bytes",
            ),
            (
                "yes 10.0.0.1 | head -c 70000000 | ipconf-check -",
                65,
                "stdin: … this is not a list \
                of hosts",
            ),
            (
                "printf 'ip,login\\n10.77.0.1,a,b\\n' | ipconf-check -",
                65,
                "stdin:2: … has 3 \
                columns, and the header has 2 columns",
            ),
            (
                "printf 'name,zone\\n' | ipconf-check -",
                65,
                "stdin:1: … no column gives the address \
                of a host: name, zone",
            ),
            (
                "printf 'ip;login\\n10.77.0.1;\"a b\"\\n' | ipconf-check -",
                65,
                "stdin:2: … login \
                \"a b\" is neither a name nor an address",
            ),
            (
                "printf 'ip,Private IP,internal_ip\\n' | ipconf-check -",
                65,
                "stdin:1: … are both \
                columns for the address",
            ),
            // the stream
            (
                "true | part-map --part-config out/g.json --workspace \
                /w",
                65,
                "stdin: … the stage before this one failed: no record came in",
            ),
            (
                "head -n 1 hosts | dgl-env --role worker -- t",
                65,
                "stdin: … 1 of 2 host records \
                are missing",
            ),
            (
                "cat hosts hosts | dgl-env --role worker -- t",
                65,
                "stdin: … host records: id 0 is \
                there twice",
            ),
            (
                "echo x | dgl-env --role worker -- t",
                65,
                "stdin: line 1: … not a record",
            ),
            (
                "head -c 30 hosts | dgl-env --role worker -- t",
                65,
                "stdin: … line 1 breaks off",
            ),
            (
                "echo '{\"type\":\"file\",\"id\":0,\"of\":1}' | dgl-spawn",
                65,
                "stdin: … never copied",
            ),
            (
                "echo '{\"type\":\"x\"}' | dgl-env --role worker -- t",
                65,
                "stdin: … no host record \
                came in",
            ),
            (
                "sed 's/\"ip\":\"[^\"]*\"/\"ip\":\"x\"/' hosts | dgl-env --role worker -- t",
                65,
                "stdin: host record 0: … invalid IPv4",
            ),
            (
                "dgl-env --role worker -- t <none",
                74,
                "stdin: … Is a directory",
            ),
            (
                "head -c 80000000 /dev/zero | tr '\\0' ' ' | sed 's/^/{/' | dgl-env --role worker \
                 -- t",
                65,
                "stdin: line 1: … a record of more than",
            ),
            (
                "grep '\"graph\"' files >g; cat files g | part-push \
                --dry-run",
                65,
                "stdin: … 2 graph records, where one is enough",
            ),
            (
                "ipconf-check ip.txt >/dev/full",
                74,
                "stdout: … No space left",
            ),
            ("dgl-report no.jsonl", 74, "no.jsonl: … No such file"),
            ("dgl-why no.jsonl", 74, "no.jsonl: … No such file"),
            // the partition config and its files
            (
                "<hosts part-map --part-config no.json --workspace /w",
                74,
                "no.json: … No such file",
            ),
            (
                "ipconf-check heer.txt",
                74,
                "heer.txt: … (os error 2); did you mean here.txt?",
            ),
            (
                "<hosts part-map --part-config ou/g.json --workspace /w",
                74,
                "ou/g.json: … did you mean out/g.json?",
            ),
            (
                "<hosts part-fit --part-config out/h.json --num-trainers 1",
                74,
                "out/h.json: … did you mean out/g.json?",
            ),
            (
                "<hosts part-map --workspace /w --script-folder oat",
                74,
                "oat: … did you mean out?",
            ),
            (
                "sed 's/graph.dgl/grpah.dgl/' out/g.json >out/slip.json; <hosts part-map \
                --part-config out/slip.json --workspace /w",
                65,
                "part-0.part_graph: … did you mean ",
            ),
            (
                "<hosts part-map --part-config hosts --workspace \
                /w",
                65,
                "hosts: … not a partition config",
            ),
            (
                "echo '{\"graph_name\":\"g\"}' >c; <hosts part-map --part-config c --workspace \
                /w",
                65,
                "c: … num_parts",
            ),
            (
                "sed 's/\"g\"/\"a\\/b\"/' out/g.json >c; <hosts part-map --part-config c \
                --workspace /w",
                65,
                "c: … cannot be a file's name",
            ),
            (
                "<here part-map --part-config out/g.json --workspace \
                /w",
                65,
                "out/g.json: … 2 partitions for 1 hosts",
            ),
            (
                "mkdir x; sed 's/part0/part7/g' out/g.json >x/g.json; <hosts part-map \
                 --part-config x/g.json --workspace /w",
                65,
                "part-0.node_feats: … no such file",
            ),
            (
                "cp -r out bad; : >bad/part0/graph.dgl; <hosts part-map --part-config bad/g.json \
                 --workspace /w",
                65,
                "PWD/bad/part0/graph.dgl: … is empty",
            ),
            (
                "cp -r out b2; echo x >b2/part1/graph.dgl; <hosts part-map --part-config \
                 b2/g.json --workspace /w",
                65,
                "PWD/b2/part1/graph.dgl: … does not begin as",
            ),
            (
                "sed 's/\\[1, 2\\]/[1,2,3]/' out/g.json >out/m.json; <hosts part-map \
                 --part-config out/m.json --workspace /w",
                65,
                "out/m.json: … node_map",
            ),
            (
                "<hosts part-map --workspace /w --script-folder \
                nowhere",
                74,
                "nowhere: … No such file",
            ),
            (
                "<hosts part-map --workspace /w --extra nowhere",
                74,
                "nowhere: … No such file",
            ),
            (
                "mkfifo none/p; <hosts part-map --workspace /w --script-folder \
                none",
                65,
                "PWD/none/p: … is neither a file nor a folder",
            ),
            (
                "mkdir loop; ln -s . loop/me; <hosts part-map --workspace /w --script-folder \
                loop",
                74,
                "PWD/loop/me: … it has no end",
            ),
            (
                "<hosts part-map --workspace /w --extra here.txt:a --extra \
                ip.txt:a",
                65,
                "PWD/ip.txt: … goes to /w/a",
            ),
            (
                "<hosts part-map --workspace '~/w' --script-folder \
                code",
                65,
                "--workspace: … the home of host 0",
            ),
            // the plan
            (
                "<files dgl-env --workspace /x --num-trainers 1 -- t",
                65,
                "--workspace: … /x here, but /w in",
            ),
            (
                "<job dgl-env --role worker -- t",
                65,
                "stdin: … there are process \
                records of worker in the stream already",
            ),
            (
                "<hosts dgl-env --workspace '~/w' --role worker -- t",
                65,
                "--workspace: … is not \
                known",
            ),
            (
                "<probed dgl-env --role worker -- python3.9 \
                t.py",
                65,
                "COMMAND: … python3.9 is not what host 0 (10.77.0.1) has in /v",
            ),
            (
                "sed 's/30050/0/' hosts | dgl-env --role worker -- t",
                65,
                "host 0 \
                (10.77.0.1): … port 0",
            ),
            (
                "sed 's/\"prefix\":\"/&x/' probed | dgl-env --role worker -- t",
                65,
                "host 0 (10.77.0.1): … prefix \"x/v\" is not an absolute path",
            ),
            (
                "<hosts dgl-env --num-trainers 1 --workspace /w --part-config g --master-port \
                 30050 -- t",
                65,
                "host 0 (10.77.0.1): … the master port 30050",
            ),
            (
                "mkdir -p ws; echo x >ws/g.json; <hosts dgl-env --num-trainers 1 --workspace \
                 $PWD/ws --part-config g.json -- t",
                65,
                "PWD/ws/g.json: … not a partition config",
            ),
            // records that were edited
            (
                "sed 's/\"dst\":\"[^\"]*\",//' files | part-push \
                --dry-run",
                65,
                "file record 0: … has neither dst nor dst_b64",
            ),
            (
                "sed 's/\"argv\"/\"argv_b64\"/' job | dgl-spawn \
                --dry-run",
                65,
                "process record 0: argv_b64: … is not base64",
            ),
            (
                "sed 's/\"argv\"/\"argv2\"/' job | dgl-spawn \
                --dry-run",
                65,
                "process record 0: … needs one of argv",
            ),
            // a NUL byte: another command than the one that is written would run
            (
                r#"sed 's/run!/ru\\u0000n/' job | dgl-spawn --dry-run"#,
                65,
                "process record 0: \
                argv: … has a NUL byte in it",
            ),
            (
                r#"sed 's/run!/ru\\u0000n/' job | dgl-spawn --connect local"#,
                65,
                "process record \
                0: argv: … has a NUL byte in it",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then del(.argv) | .argv_b64 = ["ZWNobwA="] "#,
                    r#"else . end' job | dgl-spawn --dry-run"#
                ),
                65,
                "process record 0: argv: … has a NUL byte in it",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then del(.argv) | .shell = "echo a\u0000b" "#,
                    r#"else . end' job | dgl-spawn --dry-run"#
                ),
                65,
                "process record 0: shell: … has a NUL byte in it",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then .cwd = "/tmp\u0000/x" else . end' job | "#,
                    r#"dgl-spawn --dry-run"#
                ),
                65,
                "process record 0: cwd: … has a NUL byte",
            ),
            (
                r#"jq -c 'if .argv then .setup = ":\u0000" else . end' job | dgl-spawn --dry-run"#,
                65,
                "process record 0: setup: … has a NUL byte",
            ),
            (
                r#"jq -c 'if .argv then .env.A = "\u0000" else . end' job | dgl-spawn --dry-run"#,
                65,
                "process record 0: env: … has a NUL byte",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then .env_b64.A = "YQBi" else . end' job | "#,
                    r#"dgl-spawn --connect local"#
                ),
                65,
                "process record 0: env: … has a NUL byte",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then .server_name = "../g" else . end' job | "#,
                    r#"dgl-spawn --dry-run"#
                ),
                65,
                "process record 0: … server_name \"../g\" is not a name: letters, digits",
            ),
            (
                concat!(
                    r#"jq -c 'if .argv then .server_name = "g\u0000" else . end' job "#,
                    r#"| dgl-spawn --dry-run"#
                ),
                65,
                "process record 0: server_name: … has a NUL byte",
            ),
            (
                "<hosts dgl-env --role worker --num-workers gpus -- t",
                65,
                "host 1 (10.77.0.2): … --num-workers gpus: its number of GPUs is unknown",
            ),
        ],
    );
}

#[test]
fn of_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    cluster.stand_in_for_dgl(1, "2.1.0");
    let script = "ipconf-check ip.txt >hosts; printf '10.77.0.1\\n10.77.0.9\\n' | ipconf-check - \
        >half; mkdir code; echo x >code/a
        printf 'ip,login\\n10.77.0.2,h1\\n' | ipconf-check - >other; ssh-keygen \
            -q -t ed25519 -N '' -f wrong
        printf '10.77.0.9\\n' | ipconf-check - | sed \
            's/\"ip\"/\"login\":\"nowhere.invalid\",\"ip\"/' >nowhere
        part-map --script-folder code --workspace /srv/w <hosts >plan
        cp ~/.ssh/known_hosts known; awk '/h1 /{ key = $3 } /h2 /{ $3 = key } 1' known >changed";
    cluster.sh(&folder, script).ends(0);
    let worker = "dgl-env --role worker <hosts 2>/dev/null";
    let both = ["ssh2", "ssh"];
    // what the tools are told; the status; where and what; by ssh2 and by ssh where two texts stand
    let rows: &[(&str, i32, &str, [&str; 2])] = &[
        (
            "DGL_TOOLS_CONNECT_TIMEOUT=2s host-probe <half",
            74,
            "host 1 (10.77.0.9)",
            [" "; 2],
        ),
        (
            "DGL_TOOLS_SSH_PORT=2 host-probe --host 1 <hosts",
            74,
            "host 1 (10.77.0.2)",
            [
                "10.77.0.2:2: Connection refused",
                "port 2: Connection refused",
            ],
        ),
        (
            "DGL_TOOLS_SSH_USERNAME=nobody2 host-probe --host 1 <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["login refused for nobody2", "Permission denied"],
        ),
        (
            "DGL_TOOLS_IDENTITY=wrong host-probe --host 1 <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["login refused", "Permission denied"],
        ),
        (
            "DGL_TOOLS_SSH_CONFIG=/none host-probe --host 1 <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["Can't open user config file /none"; 2],
        ),
        (
            "host-probe <nowhere",
            74,
            "host 0 (10.77.0.9)",
            ["nowhere.invalid: "; 2],
        ),
        (
            ": >~/.ssh/known_hosts; host-probe --host 1 <hosts",
            74,
            "host keys",
            ["these keys are not in known_hosts"; 2],
        ),
        (
            "cp changed ~/.ssh/known_hosts; host-probe --host 1 <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["its key is not the one that known_hosts has"; 2],
        ),
        (
            &format!("host-probe --python {PYTHON_WITH_STAND_IN} <other"),
            74,
            "host 0 (10.77.0.2)",
            ["10.77.0.2 is not the first address of an interface there (eth0 10.77.0.1)"; 2],
        ),
        (
            "host-probe --venv /srv/none <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["no such folder: /srv/none"; 2],
        ),
        (
            "host-probe --conda none <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["no conda environment none in "; 2],
        ),
        (
            "host-probe --python none --host 1 <hosts",
            0,
            "warning: host 1 (10.77.0.2)",
            ["none does not run there: "; 2],
        ),
        (
            "host-probe --connect 'false {name}' <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["the connection ended before the script"; 2],
        ),
        (
            "host-probe --connect 'no-such-program {name}' <hosts",
            74,
            "host 0 (10.77.0.1)",
            ["no-such-program"; 2],
        ),
        (
            &format!("{worker} --workspace /srv/none -- true | dgl-spawn"),
            74,
            "hosts 0-1",
            ["no such folder: /srv/none"; 2],
        ),
        (
            &format!("{worker} -- no-such-command | dgl-spawn"),
            74,
            "hosts 0-1",
            ["no such command: no-such-command"; 2],
        ),
        (
            "DGL_TOOLS_SSH_PORT=2 DGL_TOOLS_CONNECT_TIMEOUT=2s part-push --host 0 <plan",
            74,
            "host 0 (10.77.0.1)",
            ["Connection refused"; 2],
        ),
        (
            "part-pull --to got --workspace /srv/none 'x*' <hosts",
            74,
            "host 1 (10.77.0.2)",
            ["there is no folder /srv/none"; 2],
        ),
        (
            "part-pull --to got --workspace /srv 'none*' <hosts",
            1,
            "pattern",
            ["no host has a file that matches none*"; 2],
        ),
        (
            "DGL_TOOLS_CONNECT_TIMEOUT=2s dgl-reap --list <half",
            74,
            "host 1 (10.77.0.9)",
            ["10.77.0.9"; 2],
        ),
        (
            "dgl-reap --job none --signal USR1 <hosts",
            1,
            "--signal",
            ["no such process of job none on any host"; 2],
        ),
    ];
    let mut wrong = Vec::new();
    for (script, status, location, problems) in rows {
        for (how, problem) in both.iter().zip(*problems) {
            let ran = cluster.sh(
                &folder,
                &format!(
                    "export DGL_TOOLS_CONNECT={how}; cp known \
                ~/.ssh/known_hosts; {{ {script}; }} >out"
                ),
            );
            let tool = script
                .rsplit(['|', ';'])
                .next()
                .unwrap()
                .split_whitespace()
                .find(|word| !word.starts_with("DGL_TOOLS_"))
                .unwrap();
            println!("$ {script}\n{}", ran.err);
            let faults: Vec<&str> = ran.err.lines().filter(|line| !is_progress(line)).collect();
            let report = faults.iter().any(|line| {
                line.starts_with(&format!("{tool}: {location}: ")) && line.contains(problem)
            });
            if let (true, true, Ok(())) = (
                ran.status == *status,
                report,
                in_form(tool, &faults.join("\n")),
            ) {
                continue;
            }
            wrong.push(format!(
                "{how}: {script}: wanted {status} and {location}: … {problem}, got {}\n{}",
                ran.status, ran.err
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is told beside faults.
fn is_progress(line: &str) -> bool {
    let signals = [
        " there already",
        ": nothing was started",
        "no process of any job",
    ];
    signals.iter().any(|sign| line.contains(sign))
}
