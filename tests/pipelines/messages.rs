//! What goes wrong is told in one form: where, what, and what to do. Here is what is said of real
//! hosts; ../cases/*messages_*.txt have all else that can be provoked.

use support::{Cluster, PYTHON_WITH_STAND_IN, in_form};

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
            "host-probe <half",
            74,
            "host 1 (10.77.0.9)",
            ["No route to host"; 2],
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
            ["10.77.0.2 is not the first address of an interface of the host (eth0 10.77.0.1)"; 2],
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
            ["none does not run: "; 2],
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
            "dgl-reap --list <half",
            74,
            "host 1 (10.77.0.9)",
            ["No route to host"; 2],
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
        "B copied",
        ": nothing to copy",
        ": nothing was started",
        "no process of any job",
    ];
    signals.iter().any(|sign| line.contains(sign))
}
