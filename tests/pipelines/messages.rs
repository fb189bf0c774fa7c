//! What goes wrong is told in one form: where, what, and what to do. Here is what all tools say,
//! and what is said of real hosts; ../cases/messages_*.txt have all else that can be provoked.

use support::{Cluster, PYTHON_WITH_STAND_IN, in_form, ip_config, scratch, sh};

/// Records of two hosts in `hosts`.
fn made() -> std::path::PathBuf {
    let folder = scratch();
    ip_config(&folder, 2);
    sh(&folder, "ipconf-check ip.txt >hosts").ends(0);
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
            ["no such directory: /srv/none"; 2],
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
            ["the connection ended unexpectedly"; 2],
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
            ["no such directory: /srv/none"; 2],
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
            ["there is no directory /srv/none"; 2],
        ),
        (
            "part-pull --to got --workspace /srv 'none*' <hosts",
            1,
            "pattern",
            ["none of 2 hosts has a file in /srv that matches none*"; 2],
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
